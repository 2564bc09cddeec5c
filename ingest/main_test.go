package ingest

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/csigscope/csigscope/aggregate/store/chdb"
	"github.com/csigscope/csigscope/aggregate/store/chdb/chdbtest"
)

func TestMain(m *testing.M) {
	if chdb.InChild() {
		chdbtest.Main(m)
	}
	if dir := os.Getenv(childFolder); dir != "" {
		child(dir, os.Getenv(childRole))
		return
	}
	goleak.VerifyTestMain(m)
}
