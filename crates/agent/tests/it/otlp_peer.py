"""Takes profiles by gRPC, also encrypted, and reads requests from files, with OpenTelemetry's generated messages.

Prints one JSON line for each request, sorted by what it says. Answers as the arguments say, one for each request, then with OK:
`unavailable`, `exhausted` (with RetryInfo of 1 s), `invalid`, `partial`.
"""
import gzip
import json
import sys
from concurrent import futures

import grpc
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as stubs


def told(request, metadata=()):
    d = request.dictionary
    strings, profiles = d.string_table, []
    for resource in request.resource_profiles:
        attributes = {a.key: a.value.string_value or a.value.int_value for a in resource.resource.attributes}
        for scope in resource.scope_profiles:
            for profile in scope.profiles:
                stacks = []
                for sample in profile.samples:
                    locations = [d.location_table[i] for i in d.stack_table[sample.stack_index].location_indices]
                    functions = [d.function_table[line.function_index] for at in locations for line in at.lines]
                    stacks.append([strings[f.name_strindex] for f in functions])
                profiles.append({
                    "attributes": attributes,
                    "type": strings[profile.sample_type.type_strindex],
                    "begin": profile.time_unix_nano,
                    "id": profile.profile_id.hex(),
                    "stacks": stacks,
                    "times": [t for s in profile.samples for t in s.timestamps_unix_nano],
                })
    return json.dumps({"metadata": dict(metadata), "profiles": profiles})


class Profiles(stubs.ProfilesServiceServicer):
    def __init__(self, script):
        self.script = script

    def Export(self, request, context):
        metadata = {k: v for k, v in context.invocation_metadata() if isinstance(v, str)}
        print(told(request, metadata), flush=True)
        answer = self.script.pop(0) if self.script else "ok"
        if answer == "unavailable":
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        if answer == "exhausted":
            # google.rpc.Status{8, details: Any{RetryInfo{Duration{1 s}}}}
            url = b"type.googleapis.com/google.rpc.RetryInfo"
            info = b"\x0a\x02\x08\x01"
            anything = b"\x0a" + bytes([len(url)]) + url + b"\x12" + bytes([len(info)]) + info
            details = b"\x08\x08\x1a" + bytes([len(anything)]) + anything
            context.set_trailing_metadata([("grpc-status-details-bin", details)])
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "enough")
        if answer == "invalid":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        response = service.ExportProfilesServiceResponse()
        if answer == "partial":
            response.partial_success.rejected_profiles = 2
            response.partial_success.error_message = "two"
        return response


def serve(script, certificate=None):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    stubs.add_ProfilesServiceServicer_to_server(Profiles(script), server)
    if certificate:
        chain, key = (open(path, "rb").read() for path in certificate)
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, chain)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    print("listens", port, flush=True)
    server.start()
    server.wait_for_termination()


if sys.argv[1] == "serve":
    serve(sys.argv[2:])
elif sys.argv[1] == "serve-tls":
    serve([], sys.argv[2:])
else:
    for path in sys.argv[2:]:
        request = service.ExportProfilesServiceRequest()
        request.ParseFromString(gzip.open(path).read())
        print(told(request))
