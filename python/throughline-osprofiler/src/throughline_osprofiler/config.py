"""Another way to have the driver be there, where .pth files are not wanted: a driver of oslo.config.

    [DEFAULT]
    config_source = throughline
    [throughline]
    driver = throughline

Its source of configuration has nothing in it.
"""

from oslo_config import sources

from throughline_osprofiler import hook


class Empty(sources.ConfigurationSource):
    """Knows no option."""

    def get(self, group_name, option_name, opt):
        return (sources._NoValue, None)


class Driver(sources.ConfigurationSourceDriver):
    """Made, without arguments, whenever oslo.config looks for its drivers."""

    def __init__(self):
        hook.install()

    def list_options_for_discovery(self):
        return []

    def open_source_from_opt_group(self, conf, group_name):
        return Empty()
