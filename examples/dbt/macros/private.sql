-- The materialization of models that are plain SELECTs over people: a table of what dp_query answers.
{% materialization private, adapter='duckdb' %}
  {%- set arguments = config.get('meta', {}).get('dpsql') -%}
  {%- if arguments is not mapping -%}
    {{ exceptions.raise_compiler_error(
      "a private model says what it may spend: config(meta={'dpsql': {'epsilon': 0.5}})") }}
  {%- endif -%}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set intermediate_relation = make_intermediate_relation(target_relation) -%}
  {%- set existing_type = existing_relation.type if existing_relation else 'table' -%}
  {%- set backup_relation = make_backup_relation(target_relation, existing_type) -%}
  {{ drop_relation_if_exists(load_cached_relation(intermediate_relation)) }}
  {{ drop_relation_if_exists(load_cached_relation(backup_relation)) }}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% call statement('main') -%}
    {{ create_table_as(False, intermediate_relation, private_query(compiled_code, arguments)) }}
  {%- endcall %}
  {% if existing_relation %}{{ adapter.rename_relation(existing_relation, backup_relation) }}{% endif %}
  {{ adapter.rename_relation(intermediate_relation, target_relation) }}
  {% do create_indexes(target_relation) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% set revoke = should_revoke(existing_relation, full_refresh_mode=True) %}
  {% do apply_grants(target_relation, config.get('grants'), should_revoke=revoke) %}
  {% do persist_docs(target_relation, model) %}
  {{ adapter.commit() }}
  {{ drop_relation_if_exists(backup_relation) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{% macro private_query(sql, arguments) -%}
  SELECT * FROM dp_query({{ sql_literal(sql) }}
  {%- for name, value in arguments.items() %}, {{ name }} := {{ sql_literal(value) }}{% endfor %})
{%- endmacro %}

{% macro sql_literal(value) -%}
  {%- if value is none -%} NULL
  {%- elif value is string -%} '{{ value | replace("'", "''") }}'
  {%- elif value is boolean -%} {{ value | string | lower }}
  {%- elif value is mapping -%} {
    {%- for key, one in value.items() -%}
      {{ sql_literal(key) }}: {{ sql_literal(one) }}{{ ', ' if not loop.last }}
    {%- endfor -%} }
  {%- elif value is iterable -%} [
    {%- for one in value -%} {{ sql_literal(one) }}{{ ', ' if not loop.last }} {%- endfor -%} ]
  {%- else -%} {{ value }}
  {%- endif -%}
{%- endmacro %}
