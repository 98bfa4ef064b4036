from support.spark_servers import sail_server, sail_session

__all__ = ["sail_server", "sail_session"]
