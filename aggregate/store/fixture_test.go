package store

import (
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// testStart is the start of the windows of tests: long ago, as in a replayed capture.
var testStart = time.Date(2024, 2, 29, 23, 58, 0, 0, time.UTC)

func testQuestion() Question {
	return Question{Signal: csig.MinABWRatio, From: testStart, To: testStart.Add(10 * time.Minute), Resolution: time.Second}
}
