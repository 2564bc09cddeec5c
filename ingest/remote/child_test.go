package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// childVariable holds the errand of a child process of the test binary, in JSON.
const childVariable = "CSIGSCOPE_TEST_INGEST"

// errand is the task of a child, which runs until it is killed or its standard input ends.
type errand struct {
	Exporters *exportersErrand `json:",omitempty"`
	Collector *collectorErrand `json:",omitempty"`
}

func (e *errand) String() string {
	text, err := json.Marshal(e)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// runChild runs an errand and ends the process.
func runChild(text string) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	var e errand
	err := json.Unmarshal([]byte(text), &e)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	switch {
	case err != nil:
	case e.Exporters != nil:
		err = e.Exporters.run(ctx, logger)
	case e.Collector != nil:
		err = e.Collector.run(ctx, logger)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, text, err)
		os.Exit(1)
	}
	os.Exit(0)
}
