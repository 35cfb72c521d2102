"""Decodes a request of OTLP from standard input with OpenTelemetry's own messages: prints it as JSON, and what was not known of it.

The argument is `traces` or `logs`.
"""

import json
import sys

from google.protobuf.json_format import MessageToDict
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def unknown(message):
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if hasattr(value, "__len__") and not hasattr(value, "ListFields") else [value]:
                count += unknown(part)
    return count


request = {"traces": ExportTraceServiceRequest, "logs": ExportLogsServiceRequest}[sys.argv[1]]()
request.ParseFromString(sys.stdin.buffer.read())
print(json.dumps({"request": MessageToDict(request), "unknown": unknown(request)}))
