package alto_test

import (
	"net/http/httptest"
	"testing"
)

// TestAccept: a client that accepts only other types gets 406; any range that covers the type
// will do.
func TestAccept(t *testing.T) {
	s := newServed(t)
	s.window(t, 0)
	for accept, want := range map[string]int{
		"*/*": 200, "application/*": 200, "application/alto-costmap+json": 200, "application/alto-costmap+json, application/alto-error+json": 200,
		"text/html, */*;q=0.1": 200, "Application/ALTO-CostMap+JSON; q=0.5": 200, "text/html;level=, */*": 200,
		"text/html": 406, "application/json": 406, "application/alto-error+json": 406, "application/alto-costmap+json;q=0, */*": 406, "*/*;q=0": 406,
	} {
		r := httptest.NewRequest("GET", "/alto/costmap/num-routingcost", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d, want %d", accept, w.Code, want)
		}
	}
}

// TestUnchanged: a client with the present answer gets 304 by its tag, until the answer changes.
// Answers to POST have no tags.
func TestUnchanged(t *testing.T) {
	s := newServed(t)
	s.window(t, 0)
	ask := func(method, path, known string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("If-None-Match", known)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{"/alto/directory", "/alto/networkmap", "/alto/costmap/num-routingcost", "/alto/costmap/ord-bw-available"} {
		tag := ask("GET", path, "").Header().Get("ETag")
		for known, want := range map[string]int{tag: 304, "W/" + tag: 304, `"x", ` + tag: 304, "*": 304, `"x"`: 200, "": 200} {
			if w := ask("GET", path, known); w.Code != want || (want == 304) != (w.Body.Len() == 0) || w.Header().Get("ETag") != tag {
				t.Errorf("%s of who has %s: %d, want %d, with tag %s", path, known, w.Code, want, w.Header().Get("ETag"))
			}
		}
		if w := ask("HEAD", path, tag); w.Code != 304 {
			t.Errorf("HEAD %s: %d", path, w.Code)
		}
	}
	tag := ask("GET", "/alto/costmap/num-routingcost", "").Header().Get("ETag")
	s.window(t, 1)
	if w := ask("GET", "/alto/costmap/num-routingcost", tag); w.Code != 200 || w.Header().Get("ETag") == tag {
		t.Errorf("after another window: %d", w.Code)
	}
	if w := s.ask("POST", "/alto/costmap/filtered", prefix+"costmapfilter"+suffix, `{`+cost+`}`); w.Code != 200 || w.Header().Get("ETag") != "" {
		t.Errorf("what was posted: %d with tag %s", w.Code, w.Header().Get("ETag"))
	}
}
