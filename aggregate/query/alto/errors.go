package alto

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"github.com/csigscope/csigscope/aggregate/query"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 1 << 20

// failure is an error as RFC 7285, section 8.5.2, has it.
type failure struct {
	status int
	meta   map[string]string
}

func (f *failure) Error() string { return fmt.Sprint(f.meta["code"], " ", f.meta["field"]) }

func missing(field string) error {
	return &failure{http.StatusBadRequest, map[string]string{"code": "E_MISSING_FIELD", "field": field}}
}

// maxValue bounds a value that is told back, in bytes.
const maxValue = 256

func invalid(field, value string) error {
	return &failure{http.StatusBadRequest, map[string]string{
		"code": "E_INVALID_FIELD_VALUE", "field": field, "value": strings.ToValidUTF8(value[:min(len(value), maxValue)], "\uFFFD"),
	}}
}

// read reads the body of a request, whose fields that nobody knows are passed over.
func read(r *http.Request, mediaType string, into any) error {
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != mediaType {
		return &failure{http.StatusUnsupportedMediaType, map[string]string{"code": "E_SYNTAX", "syntax-error": "expected a body of " + mediaType}}
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return &failure{http.StatusRequestEntityTooLarge, map[string]string{"code": "E_SYNTAX", "syntax-error": fmt.Sprintf("expected at most %d bytes", maxBody)}}
	}
	err = json.Unmarshal(text, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := strings.TrimPrefix(wrong.Field, "wanted.") // what requests have in common is no field of theirs
		return &failure{http.StatusBadRequest, map[string]string{"code": "E_INVALID_FIELD_TYPE", "field": strings.ReplaceAll(field, ".", "/")}}
	}
	if err != nil {
		detail := "the body ends too early"
		if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
			detail = fmt.Sprintf("at offset %d: %s", wrong.Offset, wrong)
		}
		return &failure{http.StatusBadRequest, map[string]string{"code": "E_SYNTAX", "syntax-error": detail}}
	}
	return nil
}

// fail answers with an error. What went wrong inside is logged and not told.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[*failure](err)
	if o := query.OutcomeOf(r.Context(), err); !ok && o == query.Canceled {
		http.Error(w, "the request was ended before its answer", o.Status())
		return
	}
	if !ok {
		s.Logger.ErrorContext(r.Context(), "answer ALTO request", slog.String("path", r.URL.Path), slog.Any("error", err))
		w.Header().Set("Retry-After", query.RetryAfter)
		http.Error(w, "the server could not answer: its log says why", http.StatusServiceUnavailable)
		return
	}
	body, err := json.Marshal(map[string]any{"meta": f.meta})
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", typeError)
	w.WriteHeader(f.status)
	_, _ = w.Write(body)
}
