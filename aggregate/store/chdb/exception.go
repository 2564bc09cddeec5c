package chdb

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
)

// Error codes of ClickHouse that this package itself raises.
const (
	codeSyntax         = 62
	codeUnknownFormat  = 73
	codeReadonly       = 164
	codeNotImplemented = 48
	codeTooBusy        = 202
	codeTooLarge       = 396
	codeTooDeep        = 306
	codeNetwork        = 210
	codeUnknown        = 1002
)

// exception is an error as ClickHouse reports it: text begins with "Code: N. DB::Exception: ",
// which clients parse.
type exception struct {
	code int
	text string
}

func (e *exception) Error() string { return e.text }

func newException(code int, format string, args ...any) *exception {
	return &exception{code: code, text: fmt.Sprintf("Code: %d. DB::Exception: ", code) + fmt.Sprintf(format, args...)}
}

// maxExceptionText bounds the text of an exception, which may quote a long statement.
const maxExceptionText = 4 << 10

// parseException parses the code from the engine's error text.
func parseException(text string) *exception {
	text = strings.TrimSpace(text)
	if len(text) > maxExceptionText {
		text = strings.ToValidUTF8(text[:maxExceptionText], "") + " …"
	}
	if rest, ok := strings.CutPrefix(text, "Code: "); ok {
		digits, _, _ := strings.Cut(rest, ".")
		if code, err := strconv.Atoi(digits); err == nil && code > 0 {
			return &exception{code: code, text: text}
		}
	}
	return newException(codeUnknown, "%s", text)
}

// asException gives every error a code, so that clients can branch on it.
func asException(err error) *exception {
	if e, ok := errors.AsType[*exception](err); ok {
		return e
	}
	return newException(codeUnknown, "%s", err.Error())
}

// writeException answers a request that failed before its first result byte. A client that asked
// for compressed blocks gets the text in one too.
func writeException(w http.ResponseWriter, err error, blocks compress.Method) {
	e := asException(err)
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=UTF-8")
	header.Set("X-ClickHouse-Exception-Code", strconv.Itoa(e.code))
	w.WriteHeader(http.StatusInternalServerError)
	var body io.Writer = w
	if blocks != noBlocks {
		body = newBlockWriter(w, blocks)
	}
	_, _ = io.WriteString(body, e.text+"\n")
}

// writeExceptionBelowHead answers a request that failed after its status was sent.
func writeExceptionBelowHead(w http.ResponseWriter, err error, blocks compress.Method) {
	tag, header := exceptionTag(), w.Header()
	header.Set("Content-Type", "text/plain; charset=UTF-8")
	header.Set("X-ClickHouse-Exception-Tag", tag)
	header.Set("X-ClickHouse-Exception-Code", strconv.Itoa(asException(err).code))
	header.Del("Content-Encoding")
	var body io.Writer = w
	if blocks != noBlocks {
		body = newBlockWriter(w, blocks)
	}
	writeLateException(body, tag, err)
}

// exceptionTag returns the random tag that marks a genuine exception block inside the body of one
// response.
func exceptionTag() string {
	var tag [8]byte
	_, _ = rand.Read(tag[:])
	return hex.EncodeToString(tag[:])
}

// writeLateException reports a failure after result bytes have been sent, in the framing that
// ClickHouse's HTTP clients expect at the end of a body.
func writeLateException(w io.Writer, tag string, err error) {
	const marker = "__exception__"
	text := asException(err).text
	_, _ = fmt.Fprintf(w, "\r\n%s\r\n%s\r\n%s\n%d %s\r\n%s\r\n", marker, tag, text, len(text)+1, tag, marker)
}
