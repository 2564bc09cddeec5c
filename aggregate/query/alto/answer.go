package alto

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/csigscope/csigscope/aggregate/query"
)

// answer sends the result of f, or an error in the form of RFC 7285, section 8.5.
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
		var body []byte
		same := false // the client has this version
		err := s.WithSlot(r.Context(), func(ctx context.Context) error {
			v, err := f(r.WithContext(ctx))
			if err != nil {
				return err
			}
			d, isDated := v.(*dated)
			if isDated {
				v = d.document
			}
			if body, err = json.Marshal(v); err != nil {
				return err
			}
			same = method == http.MethodGet && unchanged(w, r, body)
			if isDated && !same {
				body, err = json.Marshal(d.whole())
			}
			return err
		})
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if same {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Type", mediaType)
		_, _ = w.Write(body)
	})
}

// unchanged tags the answer by its content, and reports whether the client has the same content
// (RFC 9110, section 13.1.2). Documents have sorted keys, so that equal content has equal bytes.
func unchanged(w http.ResponseWriter, r *http.Request, body []byte) bool {
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache") // caches may store it, but must revalidate
	return query.Unchanged(r.Header, tag)
}

// accepts reports whether the client accepts the type: the most specific range in its header
// decides (RFC 9110, section 12.5.1). A client without ranges accepts all.
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

// maxBody bounds a request's body, in bytes.
const maxBody = 1 << 20

// failure is an error as defined by RFC 7285, section 8.5.2.
type failure struct {
	status int
	meta   map[string]string
}

func (f *failure) Error() string { return fmt.Sprint(f.meta["code"], " ", f.meta["field"]) }

func missing(field string) error {
	return &failure{http.StatusBadRequest, map[string]string{"code": "E_MISSING_FIELD", "field": field}}
}

// maxValue bounds a value that an error quotes, in bytes.
const maxValue = 256

func invalid(field, value string) error {
	return &failure{http.StatusBadRequest, map[string]string{
		"code": "E_INVALID_FIELD_VALUE", "field": field, "value": strings.ToValidUTF8(value[:min(len(value), maxValue)], "\uFFFD"),
	}}
}

// read reads the body of a request, and ignores unknown fields.
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
		field := strings.TrimPrefix(wrong.Field, "wanted.") // the embedded struct is not a field of the request
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

// fail answers with an error. Internal errors are logged and not disclosed.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[*failure](err)
	if o := query.OutcomeOf(r.Context(), err); !ok && o == query.Canceled {
		http.Error(w, "the request was ended before its answer", o.Status())
		return
	}
	if detail, retryAfter, limited := query.UsedUp(err); limited {
		w.Header().Set("Retry-After", retryAfter)
		http.Error(w, detail, http.StatusTooManyRequests)
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
