package ingest

const (
	childFolder = "CSIGSCOPE_TEST_INGEST"
	childRole   = "CSIGSCOPE_TEST_INGEST_ROLE"
)

func child(string, string) {}
