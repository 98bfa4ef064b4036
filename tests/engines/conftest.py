from support.planted_work import rows_folder
from support.spark_servers import jvm_server, jvm_session, sail_server, sail_session, spark_session

__all__ = ["jvm_server", "jvm_session", "rows_folder", "sail_server", "sail_session", "spark_session"]
