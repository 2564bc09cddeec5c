package ingest

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		child(dir, os.Getenv(childRole))
		return
	}
	goleak.VerifyTestMain(m)
}
