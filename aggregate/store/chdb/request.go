package chdb

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/ch-go/compress"
)

// Limits of one request.
const (
	maxStatement         = 4 << 20   // bytes of SQL text
	maxReadonlyStatement = 512 << 10 // the engine itself takes 256 KiB
	maxInsertBody        = 256 << 20 // bytes of rows in one insert
	maxParams            = 256
	maxNesting           = 400 // of brackets in a statement
	maxQueryID           = 256
	defaultFormat        = "TabSeparated"
	nativeFormat         = "Native"
	dedupTokenParam      = "insert_deduplication_token"
	paramPrefix          = "param_"
	maxDedupTokenLen     = 1024
)

// query is one request of the HTTP interface. A client's settings are ignored, except the
// deduplication token of an insert; so are sessions, roles, users and passwords.
type query struct {
	statement
	params     params
	database   string
	format     string // of the result or of the inserted rows
	revision   uint64 // of the client's Native format; 0: the engine's form
	dedupToken string
	id         string
	body       io.Reader // rows of an insert, or nil

	encoding string          // of the whole answer
	blocks   compress.Method // of ClickHouse's own blocks in it
	whole    bool            // wait for the end before the first byte
	progress bool            // report progress in the head
	interval time.Duration   // between progress lines, while the query runs
	tag      atomic.Pointer[string]
}

// running is the tag of the query's connection, "" before it has one.
func (q *query) running() string {
	if tag := q.tag.Load(); tag != nil {
		return *tag
	}
	return ""
}

// newQuery reads the URL and the header.
func newQuery(r *http.Request, values url.Values) (*query, error) {
	q := &query{
		database: cmp.Or(values.Get("database"), r.Header.Get("X-ClickHouse-Database")),
		id:       headerSafe(cmp.Or(values.Get("query_id"), r.Header.Get("X-ClickHouse-Query-Id"))),
		whole:    isSet(values, "wait_end_of_query"), progress: isSet(values, "send_progress_in_http_headers"),
		interval:   progressInterval(values),
		dedupToken: values.Get(dedupTokenParam), encoding: identity, blocks: noBlocks,
	}
	if len(q.id) > maxQueryID {
		return q, newException(codeTooLarge, "query_id is longer than %d bytes", maxQueryID)
	}
	if len(q.dedupToken) > maxDedupTokenLen {
		return q, newException(codeTooLarge, "%s is longer than %d bytes", dedupTokenParam, maxDedupTokenLen)
	}
	if isSet(values, "decompress") {
		return q, newException(codeNotImplemented, "compressed blocks are not supported in a request: send the body as it is, or with Content-Encoding gzip, deflate or zstd")
	}
	if v := values.Get("client_protocol_version"); v != "" {
		revision, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return q, newException(codeSyntax, "client_protocol_version is %q: want a number", headerSafe(v))
		}
		q.revision = revision
	}
	switch {
	case isSet(values, "compress"):
		// A body that is already compressed gains nothing from a content encoding.
		q.blocks = compress.LZ4
		if strings.EqualFold(values.Get("network_compression_method"), "ZSTD") {
			q.blocks = compress.ZSTD
		}
	case values.Get("enable_http_compression") != "0":
		q.encoding = chooseEncoding(strings.Join(r.Header.Values("Accept-Encoding"), ","))
	}
	return q, nil
}

// isSet reads a setting that is 0 or 1.
func isSet(values url.Values, name string) bool {
	v := values.Get(name)
	return v != "" && v != "0" && !strings.EqualFold(v, "false")
}

// read reads the statement and its parameters. The statement is the query parameter, the body, or
// both joined; if the parameter is an insert, the body holds its rows; a form holds the statement
// and its parameters as fields.
func (q *query) read(w http.ResponseWriter, r *http.Request, values url.Values, limit int64) error {
	if err := decodeBody(r); err != nil {
		return err
	}
	sql := values.Get("query")
	if boundary := formBoundary(r); boundary != "" {
		fields, err := readForm(multipart.NewReader(http.MaxBytesReader(w, r.Body, limit), boundary))
		if err != nil {
			return err
		}
		sql += fields.Get("query")
		q.bind(fields)
		r.Body = http.NoBody
	}
	q.bind(values)
	if len(q.params.names) > maxParams {
		return newException(codeTooLarge, "more than %d query parameters", maxParams)
	}
	if err := q.readStatement(w, r, sql, limit); err != nil {
		return err
	}
	q.chooseFormat(cmp.Or(values.Get("default_format"), r.Header.Get("X-ClickHouse-Format")))
	return nil
}

func (q *query) bind(values url.Values) {
	for name, v := range values {
		if rest, ok := strings.CutPrefix(name, paramPrefix); ok {
			q.params.names = append(q.params.names, rest)
			q.params.values = append(q.params.values, v[0])
		}
	}
}

// formBoundary is the boundary of the fields of a multipart form, or "".
func formBoundary(r *http.Request) string {
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		return ""
	}
	return parameters["boundary"]
}

// readForm reads the fields of a form, whose size the reader bounds.
func readForm(form *multipart.Reader) (url.Values, error) {
	fields := make(url.Values)
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return fields, nil
		}
		if err != nil {
			return nil, bodyError(err)
		}
		name := part.FormName()
		if part.FileName() != "" || name != "query" && !strings.HasPrefix(name, paramPrefix) {
			return nil, newException(codeNotImplemented, "external tables are not supported: insert into a table instead")
		}
		if len(fields) > maxParams {
			return nil, newException(codeTooLarge, "more than %d query parameters", maxParams)
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return nil, bodyError(err)
		}
		fields.Add(name, string(value))
	}
}

func (q *query) readStatement(w http.ResponseWriter, r *http.Request, sql string, limit int64) error {
	if sql != "" {
		if q.statement = parseStatement(sql); q.insert {
			q.body = http.MaxBytesReader(w, r.Body, maxInsertBody)
			return nil
		}
	}
	rest, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return bodyError(err)
	}
	sql += string(rest)
	if strings.TrimSpace(sql) == "" {
		return newException(codeSyntax, "empty query. (SYNTAX_ERROR)")
	}
	q.statement = parseStatement(sql)
	if q.insert {
		// The engine parses rows within the statement.
		q.statement = statement{text: sql, insert: true}
	}
	return nil
}

func (q *query) chooseFormat(fallback string) {
	switch {
	case q.statement.format != "":
		q.format = q.statement.format
	case q.values:
		q.format = "Values"
	case fallback != "":
		q.format = fallback
	case q.insert:
		q.format = "Values"
	default:
		q.format = defaultFormat
	}
}

// bodyError distinguishes a body that is too large from one that did not arrive.
func bodyError(err error) error {
	if e, ok := errors.AsType[*exception](err); ok {
		return e
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return newException(codeTooLarge, "request body is larger than %d bytes: send smaller batches", tooLarge.Limit)
	}
	return &exception{
		code: codeNetwork,
		text: fmt.Sprintf("Code: %d. DB::NetException: read request body: %v", codeNetwork, err),
	}
}
