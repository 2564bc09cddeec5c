package alto_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDocumentedQuestions runs the documentation's curl examples.
func TestDocumentedQuestions(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("curl is not installed: run make deps")
		}
		t.Skip("SKIPPED: curl is not installed: run make deps")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newServed(t)
	s.window(t, 0)
	server := httptest.NewServer(s)
	defer server.Close()
	examples := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "curl ") {
			continue
		}
		examples++
		line = strings.ReplaceAll(strings.TrimSpace(line), "http://127.0.0.1:9465", server.URL)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(line, "curl ", curl+` -sSf --noproxy '*' `, 1)).Output()
		var answer map[string]map[string]any
		if jsonErr := json.Unmarshal(out, &answer); err != nil || jsonErr != nil || len(answer) != 2 {
			t.Errorf("%s: %v, %v: %.300s", line, err, jsonErr, out)
		}
		for part, fields := range answer {
			if len(fields) == 0 {
				t.Errorf("%s: no %s", line, part)
			}
		}
	}
	if examples < 4 {
		t.Errorf("%d examples", examples)
	}
}
