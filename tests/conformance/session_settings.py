"""Every setting and pragma of the running DuckDB under which an answer could change, found by enumeration."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb


@dataclass(frozen=True)
class Setting:
    """Statements that change a session, and the name of what they change."""

    name: str
    statements: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join(self.statements) or "default settings"


DEFAULT = Setting("default")

_EXCLUDED_BY_REASON = {
    "names places, users or secrets": """allowed_configs allowed_directories allowed_paths autoinstall_extension_repository
        custom_extension_repository default_secret_storage extension_directories extension_directory
        extension_repository_directory file_search_path home_directory password profile_output profiling_output
        secret_directory temp_directory user username log_query_path allow_persistent_secrets allow_unredacted_secrets
        temp_file_encryption""",
    "how extensions are found and trusted; none is loaded": """allow_community_extensions allow_extension_repositories
        allow_extensions_metadata_mismatch allow_unsigned_extensions autoinstall_known_extensions
        autoload_known_extensions active_grammar_extensions""",
    "shuts the door to files or to settings, which is tested in tests/sql/test_sources.py": """disabled_filesystems
        enable_external_access lock_configuration""",
    "fixed while a database is open": """access_mode custom_user_agent disable_database_invalidation duckdb_api
        standard_vector_size""",
    "network": """enable_http_logging enable_http_metadata_cache http_client_pool_capacity http_logging_output http_proxy
        http_proxy_password http_proxy_username redact_http_logs force_mbedtls_unsafe""",
    "what is logged or shown, not what is answered": """disabled_log_types enable_logging enabled_log_types
        enable_progress_bar enable_progress_bar_print progress_bar_time logging_level logging_mode logging_sink logging_storage
        enable_profiling profiling_coverage profiling_mode profiling_renderer_settings custom_profiling_settings
        tracked_metrics explain_output errors_as_json catalog_error_max_schemas show_behavior warnings_as_errors""",
    "how long a file takes to be written, or when": """auto_checkpoint_skip_wal_threshold checkpoint_on_detach
        checkpoint_threshold debug_checkpoint_abort debug_checkpoint_scan_sleep_ms debug_checkpoint_sleep_ms
        debug_eviction_queue_sleep_micro_seconds debug_skip_checkpoint_on_commit fsync_mode wal_autocheckpoint
        wal_autocheckpoint_entries max_vacuum_tasks vacuum_rebuild_indexes""",
    "a limit that ends a query or a process, not another answer": """max_execution_time max_expression_depth
        max_temp_directory_size memory_limit max_memory operator_memory_limit block_allocator_memory
        debug_force_no_cross_product""",
    "ends the database on 1.5.6 (a fatal error of its own over Parquet)": "debug_physical_table_scan_execution_strategy",
    "chooses another schema, and so other tables": "schema search_path",
    "DuckDB's own alias of another setting": "null_order worker_threads profile_output",
    "types that no column of interest has": """force_variant_shredding variant_minimum_shredding_size
        geometry_minimum_shredding_size enable_geoparquet_conversion ignore_unknown_crs json_geometry_format
        __delta_only_variant_encoding_enabled""",
    "switches to a parser that is not there": "current_dialect allow_parser_override_extension",
    "takes the caller's Python variables away, not rows": "python_enable_replacements",
}
EXCLUDED = {name: reason for reason, names in _EXCLUDED_BY_REASON.items() for name in names.split()}

# Values of settings that are words, or of which few numbers are legal; the default may be among them.
_WORDS = {
    "arrow_output_version": "1.0 1.1 1.2 1.3 1.4 1.5",
    "Calendar": "buddhist hebrew",
    "current_transaction_invalidation_policy": "ALL_ERRORS_INVALIDATE_TRANSACTION SYNTACTIC_ERRORS_DO_NOT_INVALIDATE",
    "debug_physical_table_scan_execution_strategy": "TASK_EXECUTOR SYNCHRONOUS TASK_EXECUTOR_BUT_FORCE_SYNC_CHECKS",
    "debug_verify_vector": """DICTIONARY_EXPRESSION DICTIONARY_OPERATOR CONSTANT_OPERATOR SEQUENCE_OPERATOR
        NESTED_SHUFFLE VARIANT_VECTOR""",
    "debug_window_mode": "COMBINE SEPARATE",
    "default_null_order": "NULLS_FIRST sqlite postgres",
    "default_order": "DESC",
    "default_transaction_invalidation_policy": "ALL_ERRORS_INVALIDATE_TRANSACTION SYNTACTIC_ERRORS_DO_NOT_INVALIDATE",
    "deprecated_using_key_syntax": "UNION_AS_UNION_ALL",
    "dialect_compatibility_mode": "SPARK",
    "disabled_compression_methods": "alp rle,dictionary bitpacking fsst zstd",
    "external_file_cache_request_sizing": "GRID EXACT",
    "force_bitpacking_mode": "CONSTANT CONSTANT_DELTA DELTA_FOR FOR",
    "force_compression": "uncompressed rle dictionary bitpacking fsst zstd alp alprd roaring dict_fsst",
    "lambda_syntax": "ENABLE_SINGLE_ARROW DISABLE_SINGLE_ARROW",
    "pin_threads": "ON OFF",
    "preserve_identifier_case": "lowercase uppercase false",
    "regex_match_operator_semantics": "FULL",
    "storage_block_prefetch": "NEVER ALWAYS_PREFETCH DEBUG_FORCE_ALWAYS",
    "storage_compatibility_version": "v0.10.2 v1.4.0",
    "table_function_identifier_conversion": "ENABLE_IMPLICIT_STRING DISABLE_IMPLICIT_STRING",
    "TimeZone": "America/St_Johns Asia/Kathmandu Pacific/Kiritimati",
    "validate_external_file_cache": "NO_VALIDATION VALIDATE_REMOTE",
    "allocator_bulk_deallocation_flush_threshold": "1MB",
    "allocator_flush_threshold": "1MB",
    "max_streaming_buffer_size": "1KB",
    "streaming_buffer_size": "1KB",
    "write_buffer_row_group_memory_limit": "1MB",
    "threads": "1 2 7",
    "external_threads": "1",
    "default_block_size": "16384",
    "initial_column_segment_size": "1024 16384",
    "debug_force_external": "true",
    "debug_asof_iejoin": "true",
    "debug_verify_blocks": "true",
}
# Several collations at once, beside every single one.
_COLLATIONS = ("nocase.noaccent", "nocase.noaccent.nfc", "de.nocase", "tr.noaccent")

_PRAGMAS_EXCLUDED = {
    "reads or writes a database, or lists something": """force_checkpoint functions extension_versions metadata_info
        version database_list database_size collations show_tables show_tables_expanded show_databases platform
        user_agent""",
    "when a file is written": "enable_checkpoint_on_shutdown disable_checkpoint_on_shutdown",
    "what is shown, not what is answered": """all_profiling_output enable_profiling disable_profiling enable_profile
        disable_profile enable_progress_bar disable_progress_bar enable_print_progress_bar disable_print_progress_bar""",
    "the default": """disable_verification disable_verify_external disable_verify_fetch_row disable_verify_parallelism
        disable_verify_serializer enable_optimizer disable_object_cache""",
}
PRAGMAS_EXCLUDED = {name: reason for reason, names in _PRAGMAS_EXCLUDED.items() for name in names.split()}
_PRAGMAS = ("disable_optimizer", "enable_object_cache", "enable_verification", "verify_external", "verify_fetch_row",
            "verify_parallelism", "verify_serializer")  # fmt: skip


@dataclass(frozen=True)
class Enumeration:
    """What the running version has.

    Attributes
    ----------
    settings : tuple of Setting
        Accepted by DuckDB.
    refused : tuple of Setting
        Not accepted.
    unknown : tuple of str
        Settings for which no other value is known: this suite is to be taught them.
    """

    settings: tuple[Setting, ...]
    refused: tuple[Setting, ...]
    unknown: tuple[str, ...]


def enumerate_settings() -> Enumeration:
    """Return every setting with other values than its default; hidden ones that are known are tried, too."""
    accepted, refused, unknown = [], [], []
    with duckdb.connect() as connection:
        listed = {
            name: (value, kind)
            for name, value, kind in connection.execute(
                "SELECT name, value, input_type FROM duckdb_settings()"
            ).fetchall()
        }
        pragmas = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'pragma' AND "
            "len(parameters) = 0 ORDER BY ALL"
        ).fetchall()
        for name in sorted({*listed, *_WORDS} - {*EXCLUDED}):
            tried = [
                Setting(name, (f"SET {name} = {other}",))
                for other in _alternatives(connection, name, *listed.get(name, (None, "")))
            ]
            taken = [setting for setting in tried if _accepts(connection, setting)]
            accepted += taken
            refused += [setting for setting in tried if setting not in taken]
            if name in listed and not taken:
                unknown.append(name)
        for (name,) in pragmas:
            if name in _PRAGMAS:
                accepted.append(Setting(name, (f"PRAGMA {name}",)))
            elif name not in PRAGMAS_EXCLUDED:
                unknown.append(f"PRAGMA {name}")
    return Enumeration(tuple(accepted), tuple(refused), tuple(unknown))


def accepted(settings: Iterable[Setting]) -> list[Setting]:
    """Return the settings that the running version takes."""
    with duckdb.connect() as connection:
        return [setting for setting in settings if _accepts(connection, setting)]


def _accepts(connection: Any, setting: Setting) -> bool:
    try:
        connection.execute(setting.statements[0])
    except duckdb.Error:
        return False
    with contextlib.suppress(duckdb.Error):
        connection.execute(f"RESET {setting.name}")
    return True


def _alternatives(connection: Any, name: str, value: str | None, kind: str) -> Iterator[str]:
    """Yield other values of a setting, as SQL."""
    if name in _WORDS:
        yield from (f"'{word}'" for word in _WORDS[name].split())
    elif name == "default_collation":
        names = [row[0] for row in connection.execute("PRAGMA collations").fetchall()]
        yield from (f"'{item}'" for item in (*names, *_COLLATIONS))
    elif name == "disabled_optimizers":
        yield from (f"'{row[0]}'" for row in connection.execute("SELECT * FROM duckdb_optimizers()").fetchall())
    elif kind == "BOOLEAN":
        yield "false" if str(value).lower() in ("true", "1") else "true"
    elif kind in ("BIGINT", "UBIGINT", "INTEGER", "UINTEGER", "DOUBLE", "FLOAT"):
        current = float(value) if value not in (None, "None") else 0.0
        yield from (f"{number:g}" for number in dict.fromkeys((0, 1, 2 * current + 1)) if number != current)
