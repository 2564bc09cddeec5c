package edge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"connectrpc.com/connect"
)

// WriteProblem writes an error response in the format of RFC 9457, with caching disabled.
func WriteProblem(w http.ResponseWriter, code int, detail string, errors ...ProblemDetail) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// An error means that the client has left.
	_ = json.NewEncoder(w).Encode(struct {
		Title  string          `json:"title"`
		Status int             `json:"status"`
		Detail string          `json:"detail,omitempty"`
		Errors []ProblemDetail `json:"errors,omitempty"`
	}{http.StatusText(code), code, detail, errors})
}

// calls writes refusals in the protocol of a call: gRPC, gRPC-Web or Connect. Their clients read other
// answers by the HTTP status alone, and take 429 for a server that is away.
var calls = connect.NewErrorWriter(connect.WithRequireConnectProtocolHeader())

// callCodes are the codes of calls for the statuses of refusals.
var callCodes = map[int]connect.Code{
	http.StatusBadRequest: connect.CodeInvalidArgument, http.StatusUnauthorized: connect.CodeUnauthenticated,
	http.StatusForbidden: connect.CodePermissionDenied, http.StatusTooManyRequests: connect.CodeResourceExhausted,
}

// refuse answers a call with an error of its protocol, and other requests with a problem.
func refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if !calls.IsSupported(r) {
		WriteProblem(w, status, detail)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	_ = calls.Write(w, r, connect.NewError(callCodes[status], errors.New(detail))) // a client that left reads no error
}

// ProblemDetail describes one invalid part of a request.
type ProblemDetail struct {
	Message  string `json:"message"`         // expected value
	Location string `json:"location"`        // such as query.NAME
	Value    string `json:"value,omitempty"` // given value
}

// StatusWriter records the status of a response.
type StatusWriter struct {
	http.ResponseWriter
	Status int // 0: nothing written yet
}

// WriteHeader implements http.ResponseWriter.
func (w *StatusWriter) WriteHeader(status int) {
	if w.Status == 0 && status >= 200 {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *StatusWriter) Write(b []byte) (int, error) {
	w.Status = cmp.Or(w.Status, http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, because some handlers test for that type.
func (w *StatusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap returns the wrapped writer for http.ResponseController.
func (w *StatusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// origins are the web sites whose scripts may send requests (CORS, Fetch standard).
type origins struct {
	allowed []string
	unsafe  *http.CrossOriginProtection // checks requests that change something
}

// maxOrigins is the maximum number of listed web sites.
const maxOrigins = 64

func newOrigins(list []string) (o origins, err error) {
	if len(list) > maxOrigins {
		return o, fmt.Errorf("origins: %d of them: expected at most %d", len(list), maxOrigins)
	}
	o.unsafe = http.NewCrossOriginProtection()
	for _, text := range list {
		text = strings.ToLower(text) // as browsers send it
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Path+u.RawQuery+u.Fragment != "" || u.User != nil {
			return o, fmt.Errorf("origins: %.100q: expected a scheme and a host such as https://te.example", text)
		}
		if err := o.unsafe.AddTrustedOrigin(text); err != nil {
			return o, fmt.Errorf("origins: %.100q: %w", text, err)
		}
		o.allowed = append(o.allowed, text)
	}
	return o, nil
}

// Methods and headers that scripts may send, and headers that they may read.
const (
	corsMethods = "GET, HEAD, POST, DELETE"
	corsHeaders = "Authorization, Content-Type, Accept, If-None-Match, Last-Event-ID, Connect-Protocol-Version, Connect-Timeout-Ms, " +
		"Grpc-Timeout, X-Grpc-Web, X-User-Agent"
	corsExposed = "ETag, Retry-After, Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin"
	corsMaxAge  = "600" // seconds
)

// preflight answers a CORS preflight request, and adds the CORS headers to responses for
// scripts of allowed origins. It reports whether it has answered.
func (o *origins) preflight(w http.ResponseWriter, r *http.Request) bool {
	if len(o.allowed) == 0 {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !slices.Contains(o.allowed, strings.ToLower(origin)) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", corsExposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// check refuses requests by scripts of other web sites that would change something: a browser
// hides the responses from such scripts but sends their requests.
func (o *origins) check(r *http.Request) error {
	if o.unsafe.Check(r) != nil {
		return errors.New("the request comes from another web site: list it among the origins of the configuration to permit it")
	}
	return nil
}
