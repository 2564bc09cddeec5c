package alto

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// answer sends what f finds, or an error as RFC 7285, section 8.5, has it.
func (s *server) answer(method, mediaType string, f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
			w.Header().Set("Allow", method)
			http.Error(w, "method not allowed: expected "+method, http.StatusMethodNotAllowed)
			return
		}
		if !accepts(r, mediaType) {
			http.Error(w, "not acceptable: this resource is of the type "+mediaType, http.StatusNotAcceptable)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		v, err := f(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		body, err := json.Marshal(v)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if method == http.MethodGet && unchanged(w, r, body) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", mediaType)
		_, _ = w.Write(body)
	})
}

// unchanged tags the answer by what it says, and tells whether the client has just that (RFC
// 9110, section 13.1.2). Documents have their keys in order, so that the same says the same.
func unchanged(w http.ResponseWriter, r *http.Request, body []byte) bool {
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache") // to be kept, and asked about
	for _, line := range r.Header.Values("If-None-Match") {
		for known := range strings.SplitSeq(line, ",") {
			if known = strings.TrimSpace(known); known == "*" || strings.TrimPrefix(known, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// accepts tells whether the client takes the type: the most specific of the ranges that it names
// decides (RFC 9110, section 12.5.1). One that names none takes all.
func accepts(r *http.Request, mediaType string) bool {
	lines := r.Header.Values("Accept")
	if len(lines) == 0 {
		return true
	}
	kind, _, _ := strings.Cut(mediaType, "/")
	best, taken := -1, false
	for _, line := range lines {
		for part := range strings.SplitSeq(line, ",") {
			span, parameters, err := mime.ParseMediaType(part)
			if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
				continue
			}
			precision := map[string]int{"*/*": 0, kind + "/*": 1, mediaType: 2}
			if p, covers := precision[span]; covers && p >= best {
				q, err := strconv.ParseFloat(parameters["q"], 64)
				best, taken = p, err != nil || q > 0
			}
		}
	}
	return taken
}
