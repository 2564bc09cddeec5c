package chdb

import "strings"

// statement is the part of a query's text that the HTTP interface must know; the engine parses
// the rest.
type statement struct {
	text     string // without FORMAT clause and final semicolon
	format   string // of the FORMAT clause, or ""
	insert   bool
	isSelect bool // a SELECT, whose result can be streamed
	values   bool // an INSERT that ends in VALUES: its rows come in the body
	nesting  int  // of brackets
}

// token is a word or a punctuation byte outside comments and quotes.
type token struct {
	start, end int
	depth      int
	quoted     bool
}

// parseStatement finds the FORMAT clause, which ends a statement or precedes a final SETTINGS
// clause.
func parseStatement(sql string) statement {
	tokens := tokenize(sql)
	deepest := nesting(sql, tokens)
	for len(tokens) > 0 && is(sql, tokens[len(tokens)-1], ";") {
		sql = sql[:tokens[len(tokens)-1].start]
		tokens = tokens[:len(tokens)-1]
	}
	s := statement{text: sql, nesting: deepest}
	if len(tokens) == 0 {
		return s
	}
	s.insert = is(sql, tokens[0], "INSERT")
	s.isSelect = isQuery(sql, tokens)
	for i := len(tokens) - 2; i > 0; i-- {
		name := tokens[i+1]
		if tokens[i].depth != 0 || name.quoted || !isWord(sql[name.start]) || !is(sql, tokens[i], "FORMAT") {
			continue
		}
		if last := i+2 == len(tokens); !last && !is(sql, tokens[i+2], "SETTINGS") {
			continue
		}
		s.format = sql[name.start:name.end]
		s.text = sql[:tokens[i].start] + sql[name.end:]
		return s
	}
	if last := tokens[len(tokens)-1]; s.insert && last.depth == 0 && is(sql, last, "VALUES") {
		s.values = true
		s.text = sql[:last.start]
	}
	return s
}

// nesting is the maximum depth of nested brackets.
func nesting(sql string, tokens []token) int {
	depth, deepest := 0, 0
	for _, t := range tokens {
		switch sql[t.start] {
		case '(', '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ')', ']', '}':
			depth--
		}
	}
	return deepest
}

// isQuery checks the first word after the parentheses of a UNION.
func isQuery(sql string, tokens []token) bool {
	for _, t := range tokens {
		if !is(sql, t, "(") {
			return is(sql, t, "SELECT") || is(sql, t, "WITH")
		}
	}
	return false
}

func is(sql string, t token, word string) bool {
	return !t.quoted && strings.EqualFold(sql[t.start:t.end], word)
}

// tokenize splits sql by ClickHouse's lexical rules, as far as comments, strings, heredocs and
// quoted names can hide a keyword.
func tokenize(sql string) []token {
	var tokens []token
	docs := heredocsOf(sql)
	depth := 0
	for i := 0; i < len(sql); {
		rest := sql[i:]
		switch c := sql[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			i++
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "#!"), strings.HasPrefix(rest, "# "):
			i += through(rest, "\n")
		case strings.HasPrefix(rest, "/*"):
			i += 2 + through(rest[2:], "*/")
		case c == '\'' || c == '"' || c == '`':
			n := quoted(rest)
			tokens = append(tokens, token{i, i + n, depth, true})
			i += n
		case typographic(rest) > 0:
			n := typographic(rest)
			tokens = append(tokens, token{i, i + n, depth, true})
			i += n
		case docs.at(sql, i) > 0:
			n := docs.at(sql, i)
			tokens = append(tokens, token{i, i + n, depth, true})
			i += n
		case isWord(c) || c == '$':
			n := 1
			for n < len(rest) && (isWord(rest[n]) || rest[n] == '$') {
				n++
			}
			tokens = append(tokens, token{i, i + n, depth, false})
			i += n
		default:
			if c == ')' && depth > 0 {
				depth--
			}
			tokens = append(tokens, token{i, i + 1, depth, false})
			if c == '(' {
				depth++
			}
			i++
		}
	}
	return tokens
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// through returns the number of bytes of s up to and including end.
func through(s, end string) int {
	if i := strings.Index(s, end); i >= 0 {
		return i + len(end)
	}
	return len(s)
}

// quoted returns the length of the quoted text at the start of s; a doubled quote or a backslash
// does not close it.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			if i+1 < len(s) && s[i+1] == s[0] {
				i++
				continue
			}
			return i + 1
		}
	}
	return len(s)
}

// typographic returns the length of the ‘text’ or “name” at the start of s, or 0. It has no
// escapes.
func typographic(s string) int {
	switch {
	case strings.HasPrefix(s, "‘"):
		return through(s, "’")
	case strings.HasPrefix(s, "“"):
		return through(s, "”")
	}
	return 0
}

// heredocs maps each $tag$ of a statement to its last position: a statement with many unclosed
// tags is then read once, not once for each tag.
type heredocs map[string]int

func heredocsOf(sql string) heredocs {
	var last heredocs
	for i := range len(sql) {
		tag := heredocTag(sql[i:])
		if tag == "" {
			continue
		}
		if last == nil {
			last = make(heredocs)
		}
		last[tag] = i
	}
	return last
}

// at returns the length of the $tag$...$tag$ text at byte i, or 0.
func (h heredocs) at(sql string, i int) int {
	tag := heredocTag(sql[i:])
	if tag == "" || h[tag] < i+len(tag) {
		return 0
	}
	return len(tag) + through(sql[i+len(tag):], tag)
}

// heredocTag is the $tag$ at the start of s, or "".
func heredocTag(s string) string {
	if s[0] != '$' {
		return ""
	}
	n := 1
	for n < len(s) && isWord(s[n]) {
		n++
	}
	if n == len(s) || s[n] != '$' {
		return ""
	}
	return s[:n+1]
}

// quoteIdentifier quotes a name as an SQL identifier.
func quoteIdentifier(name string) string {
	return "`" + strings.NewReplacer(`\`, `\\`, "`", "\\`").Replace(name) + "`"
}

// quoteString quotes text as a string literal.
func quoteString(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// escapeField escapes text as a field of TabSeparated, the engine's format for the value of a
// bound parameter.
func escapeField(text string) string {
	return strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`, "\x00", `\0`).Replace(text)
}
