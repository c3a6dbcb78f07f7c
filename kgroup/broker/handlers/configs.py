"""DescribeConfigs, ListConfigResources, AlterConfigs, IncrementalAlterConfigs.

A topic's configs can be described and changed, a broker's only described. Kafka, too, has broker
settings that cannot be changed while it runs; this broker answers with Kafka's message. A group has
no configs: all of Kafka's are for groups of the newer protocols.

Source: Kafka's ``ConfigAdminManager``, ``ConfigurationControlManager``, ``ConfigHelper``, KIP-339
(incremental), KIP-226 (synonyms).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.broker_settings import PROPERTIES
from kgroup.broker.groups.coordinator_settings import GROUP_PROPERTIES
from kgroup.broker.internal_topics import refuse_change
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.topic_configs import TOPIC_CONFIGS, ConfigType, items_of
from kgroup.broker.topics import Topic
from kgroup.error_codes import ErrorCode
from kgroup.types import topic_fault

TOPIC: Final = 2
BROKER: Final = 4
_LOGGER: Final = 8
_METRICS: Final = 16
_GROUP: Final = 32
"""Resource types."""
_KINDS: Final = (TOPIC, BROKER, _LOGGER, _METRICS, _GROUP)
_LISTED_BEFORE_KINDS: Final = (_METRICS,)
"""The resource types that version 0 of ListConfigResources lists: it cannot name any."""
_FROM_TOPIC: Final = 1
_FROM_BROKER: Final = 4
_FROM_DEFAULT: Final = 5
"""The sources of a config's value in DescribeConfigs."""
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
"""The operations of IncrementalAlterConfigs."""

_LONGS: Final = frozenset(
    {
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.retention.bytes",
        "offsets.retention.check.interval.ms",
    }
)
"""The broker's settings of type LONG."""


@final
@attrs.frozen
class Config:
    """A config's value, its type, its source, and all its possible sources in their order."""

    value: str
    config_type: ConfigType
    source: int
    synonyms: tuple[tuple[str, str, int], ...] = ()


def broker_config_type(name: str, default: str) -> ConfigType:
    """The type of a broker's setting, as Kafka reports it."""
    if name in _LONGS:
        return ConfigType.LONG
    if default in ("true", "false"):
        return ConfigType.BOOLEAN
    return ConfigType.INT if default.lstrip("-").isdigit() else ConfigType.STRING


# Queries.


async def describe_configs(context: RequestContext) -> ResponseFields:
    """Answer DescribeConfigs for topics and for the broker."""
    return {
        "results": [
            await _describe(context, requested)
            async for requested in context.work.each(context.request.resources)
        ]
    }


async def _describe(context: RequestContext, requested: Any) -> dict[str, Any]:
    result = {
        "resource_type": requested.resource_type,
        "resource_name": requested.resource_name,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "configs": (),
    }
    try:
        configs = _configs(context, requested.resource_type, requested.resource_name)
    except RequestError as error:
        return {**result, "error_code": error.code, "error_message": error.message}
    # As in Kafka, an empty list means all, too.
    wanted = set(requested.configuration_keys or ()) or None
    await context.work.include(len(configs) if wanted is None else len(wanted & configs.keys()))
    await context.work.include_bytes(sum(len(config.value) for config in configs.values()))
    await context.work.spend(len(configs))
    return {
        **result,
        "configs": [
            {
                "name": name,
                "value": config.value,
                "read_only": requested.resource_type == BROKER,
                "config_source": config.source,
                "is_sensitive": False,
                "synonyms": _synonyms(config) if context.request.include_synonyms else (),
                "config_type": config.config_type,
                "documentation": None,
            }
            for name, config in configs.items()
            if wanted is None or name in wanted
        ],
    }


def _synonyms(config: Config) -> list[dict[str, Any]]:
    return [
        {"name": name, "value": value, "source": source} for name, value, source in config.synonyms
    ]


def _configs(context: RequestContext, resource_type: int, name: str) -> Mapping[str, Config]:
    if resource_type == TOPIC:
        internal = context.cluster.internal_topics.get(name)
        return topic_configs(context, (internal or _topic(context, name)).configs)
    if resource_type == BROKER:
        _check_broker(context, name)
        return _broker_configs(context)
    if resource_type == _GROUP and name:
        return {}
    raise _no_configs(resource_type)


def _topic(context: RequestContext, name: str) -> Topic:
    topic = context.cluster.topics.get(name)
    if (fault := topic_fault(name)) is not None:
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r} {fault}")
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def _check_broker(context: RequestContext, name: str) -> None:
    if name not in ("", str(context.node.node_id)):
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"this is broker {context.node.node_id}, not {name!r}"
        )


def _no_configs(resource_type: int) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_REQUEST, f"resource type {resource_type} has no configs here"
    )


def topic_configs(context: RequestContext, own: Mapping[str, str]) -> dict[str, Config]:
    """Every config of a topic that has set some itself."""
    given = context.cluster.settings.properties
    configs: dict[str, Config] = {}
    for name, default in sorted(context.cluster.topics.config_defaults().items()):
        config = TOPIC_CONFIGS[name]
        value = config.normalize(own[name]) if name in own else default
        sources: list[tuple[str, str, int]] = []
        if name in own:
            sources.append((name, value, _FROM_TOPIC))
        if config.broker_property:
            source = _FROM_BROKER if config.broker_property in given else _FROM_DEFAULT
            sources.append((config.broker_property, default, source))
        source = sources[0][2] if sources else _FROM_DEFAULT
        configs[name] = Config(value, config.config_type, source, tuple(sources))
    return configs


def _broker_configs(context: RequestContext) -> dict[str, Config]:
    given = context.cluster.settings.properties
    defaults = {name: default for name, (_, _, default) in PROPERTIES.items()}
    groups = context.cluster.settings.groups
    for name, (field, unit, _) in GROUP_PROPERTIES.items():
        value = getattr(groups, field)
        defaults[name] = str(value if unit is None else round(value * 1000 / unit))
    return {
        name: _broker_config(name, default, given.get(name))
        for name, default in sorted(defaults.items())
    }


def _broker_config(name: str, default: str, given: str | None) -> Config:
    default_place = (name, default, _FROM_DEFAULT)
    kind = broker_config_type(name, default)
    if given is None:
        return Config(default, kind, _FROM_DEFAULT, (default_place,))
    return Config(given, kind, _FROM_BROKER, ((name, given, _FROM_BROKER), default_place))


async def list_config_resources(context: RequestContext) -> ResponseFields:
    """Answer ListConfigResources: topics and brokers have configs; without a type, both."""
    kinds = tuple(getattr(context.request, "resource_types", _LISTED_BEFORE_KINDS)) or _KINDS
    if not set(kinds) <= set(_KINDS):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": ()}
    brokers = [str(node_id) for node_id in context.cluster.brokers]
    names = {
        TOPIC: [topic.name for topic in context.cluster.topics],
        BROKER: brokers,
        _LOGGER: brokers,
    }
    return {
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in dict.fromkeys(kinds)
            for name in names.get(kind, ())
        ],
    }


# Changes.


async def alter_configs(context: RequestContext) -> ResponseFields:
    """Answer AlterConfigs: set the configs of the request, and reset all others to defaults."""
    return await _alter(
        context, lambda before, requested: {one.name: one.value for one in requested.configs}
    )


async def incremental_alter_configs(context: RequestContext) -> ResponseFields:
    """Answer IncrementalAlterConfigs: change the configs of the request only."""
    return await _alter(context, _changed)


async def _alter(
    context: RequestContext, change: Callable[[Mapping[str, str], Any], dict[str, str]]
) -> ResponseFields:
    resources = context.request.resources
    times = Counter((requested.resource_type, requested.resource_name) for requested in resources)
    return {
        "responses": [
            _alter_one(context, requested, times, change)
            async for requested in context.work.each(resources)
        ]
    }


def _alter_one(
    context: RequestContext,
    requested: Any,
    times: Mapping[tuple[int, str], int],
    change: Callable[[Mapping[str, str], Any], dict[str, str]],
) -> dict[str, Any]:
    code, message = ErrorCode.NONE, None
    try:
        if times[requested.resource_type, requested.resource_name] > 1:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_configs(requested.configs)
        if requested.resource_type == BROKER:
            _refuse_to_alter_broker(context, requested)
        if requested.resource_type == _GROUP:
            _refuse_group_configs(requested)
        elif requested.resource_type == TOPIC:
            refuse_change(requested.resource_name)
            topic = _topic(context, requested.resource_name)
            context.cluster.topics.configure(
                topic, change(topic.configs, requested), validate_only=context.request.validate_only
            )
        else:
            raise _no_configs(requested.resource_type)
    except RequestError as error:
        code, message = error.code, error.message
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": requested.resource_type,
        "resource_name": requested.resource_name,
    }


def _check_configs(configs: Iterable[Any]) -> None:
    names = [one.name for one in configs]
    if len(set(names)) < len(names):
        raise RequestError(ErrorCode.INVALID_REQUEST, "a config is named twice")
    empty = [
        one.name
        for one in configs
        if one.value is None and getattr(one, "config_operation", _SET) != _DELETE
    ]
    if empty:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"without a value: {', '.join(empty)}")


def _refuse_to_alter_broker(context: RequestContext, requested: Any) -> None:
    _check_broker(context, requested.resource_name)
    names = ", ".join(one.name for one in requested.configs)
    raise RequestError(
        ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{names}]"
    )


def _refuse_group_configs(requested: Any) -> None:
    if requested.configs:
        name = requested.configs[0].name
        raise RequestError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")


def _changed(before: Mapping[str, str], requested: Any) -> dict[str, str]:
    after = dict(before)
    for one in requested.configs:
        if one.config_operation == _SET:
            after[one.name] = one.value
        elif one.config_operation == _DELETE:
            after.pop(one.name, None)
        elif one.config_operation in (_APPEND, _SUBTRACT):
            after[one.name] = _changed_list(after.get(one.name), one)
        else:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation type {one.config_operation}"
            )
    return after


def _changed_list(before: str | None, one: Any) -> str:
    """The list after the operation; a list that the topic has not set begins as the default."""
    word = "APPEND" if one.config_operation == _APPEND else "SUBTRACT"
    config = TOPIC_CONFIGS.get(one.name)
    if config is None or config.config_type is not ConfigType.LIST:
        raise RequestError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {word} to key {one.name} because its type is not LIST.",
        )
    items = dict.fromkeys(items_of(config.default if before is None else before))
    # As in Kafka, an empty text is one empty item, which few lists may have.
    for item in items_of(one.value) or [""]:
        if one.config_operation == _APPEND:
            items[item] = None
        else:
            items.pop(item, None)
    return ",".join(items)
