"""The server fixtures give each test its own empty database and bucket."""

import io

import psycopg
from fixtures.object_store import S3Endpoint


def test_a_database_of_a_test_is_empty_and_takes_tables(database_dsn: str) -> None:
    with psycopg.connect(database_dsn) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchone() == (0,)
        connection.execute("CREATE TABLE facts (fact text)")
        connection.execute("INSERT INTO facts VALUES ('water')")
        assert connection.execute("SELECT fact FROM facts").fetchone() == ("water",)


def test_a_bucket_of_a_test_stores_objects(s3_server: S3Endpoint, bucket: str) -> None:
    client = s3_server.client()
    assert list(client.list_objects(bucket, recursive=True)) == []
    client.put_object(bucket, "a/b", io.BytesIO(b"water"), 5)
    response = client.get_object(bucket, "a/b", offset=1, length=3)
    try:
        assert response.read() == b"ate"
    finally:
        response.close()
        response.release_conn()
