package chdb

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Limits of one request.
const (
	maxStatement     = 4 << 20   // bytes of SQL text
	maxInsertBody    = 256 << 20 // bytes of rows in one insert
	maxParams        = 256
	defaultFormat    = "TabSeparated"
	nativeFormat     = "Native"
	dedupTokenParam  = "insert_deduplication_token"
	paramPrefix      = "param_"
	maxDedupTokenLen = 1024
)

// query is one request of the HTTP interface. Settings that a client sends are
// dropped, except the deduplication token of an insert.
type query struct {
	statement
	params     params
	database   string
	format     string // of the result or of the inserted rows
	revision   uint64 // of the client's Native format; 0: as the engine writes it
	dedupToken string
	id         string
	body       io.Reader // rows of an insert, or nil
}

// readQuery takes a request apart. The statement is the query parameter, the
// body, or both joined; the body of an insert whose statement is the parameter
// holds its rows.
func readQuery(w http.ResponseWriter, r *http.Request) (*query, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, newException(codeNotImplemented, "content encoding %q is not supported: send the body as it is", encoding)
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		return nil, newException(codeNotImplemented, "external tables are not supported: insert into a table instead")
	}
	values := r.URL.Query()
	for _, name := range []string{"compress", "decompress"} {
		if v := values.Get(name); v != "" && v != "0" {
			return nil, newException(codeNotImplemented, "block compression is not supported: connect without compression")
		}
	}
	q := &query{database: values.Get("database"), id: values.Get("query_id"), dedupToken: values.Get(dedupTokenParam)}
	if len(q.dedupToken) > maxDedupTokenLen {
		return nil, newException(codeTooLarge, "%s is longer than %d bytes", dedupTokenParam, maxDedupTokenLen)
	}
	if v := values.Get("client_protocol_version"); v != "" {
		revision, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return nil, newException(codeSyntax, "client_protocol_version is %q: want a number", v)
		}
		q.revision = revision
	}
	for name, v := range values {
		if rest, ok := strings.CutPrefix(name, paramPrefix); ok {
			q.params.names = append(q.params.names, rest)
			q.params.values = append(q.params.values, v[0])
		}
	}
	if len(q.params.names) > maxParams {
		return nil, newException(codeTooLarge, "more than %d query parameters", maxParams)
	}
	if err := q.readStatement(w, r, values.Get("query")); err != nil {
		return nil, err
	}
	q.chooseFormat(values.Get("default_format"))
	return q, nil
}

func (q *query) readStatement(w http.ResponseWriter, r *http.Request, sql string) error {
	if sql != "" {
		if q.statement = parseStatement(sql); q.insert {
			q.body = http.MaxBytesReader(w, r.Body, maxInsertBody)
			return nil
		}
	}
	rest, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxStatement))
	if err != nil {
		return bodyError(err)
	}
	sql += string(rest)
	if strings.TrimSpace(sql) == "" {
		return newException(codeSyntax, "empty query. (SYNTAX_ERROR)")
	}
	q.statement = parseStatement(sql)
	if q.insert {
		// Rows that stand in the statement are the engine's to parse.
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

// bodyError tells a body that is too large from one that did not arrive.
func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return newException(codeTooLarge, "request body is larger than %d bytes: send smaller batches", tooLarge.Limit)
	}
	return &exception{
		code: codeNetwork,
		text: fmt.Sprintf("Code: %d. DB::NetException: read request body: %v", codeNetwork, err),
	}
}
