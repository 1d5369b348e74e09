package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// WriteJSON writes a document as JSON, indented, with a line end.
func WriteJSON(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(document)
}

// WriteYAML writes the same document as [WriteJSON], as YAML.
func WriteYAML(w io.Writer, document any) error {
	var doc bytes.Buffer
	if err := WriteJSON(&doc, document); err != nil {
		return err
	}
	out := yamlWriter{in: json.NewDecoder(&doc)}
	out.in.UseNumber()
	if err := out.value(0, false); err != nil {
		return err
	}
	_, err := w.Write(out.b.Bytes())
	return err
}

// yamlWriter turns a JSON document into YAML in blocks, token by token. It quotes
// whatever a YAML reader could take for something else than that text: names come
// from outside, and the general encoder of goccy/go-yaml 1.19.2 lets some of them
// ("? a", line ends of other systems) change on the way.
type yamlWriter struct {
	in *json.Decoder
	b  bytes.Buffer
}

// value writes the next value at a depth. after says that a key or a dash is on the
// line already.
func (y *yamlWriter) value(depth int, after bool) error {
	token, err := y.in.Token()
	if err != nil {
		return err
	}
	switch t := token.(type) {
	case json.Delim:
		return y.collection(t, depth, after)
	case string:
		return y.scalar(yamlString(t), after)
	case json.Number:
		return y.scalar(t.String(), after)
	case bool:
		return y.scalar(fmt.Sprint(t), after)
	case nil:
		return y.scalar("null", after)
	}
	return errors.New("a token that JSON does not have")
}

func (y *yamlWriter) scalar(text string, after bool) error {
	if after {
		y.b.WriteByte(' ')
	}
	y.b.WriteString(text + "\n")
	return nil
}

// collection writes a mapping or a sequence. A mapping in a sequence begins on the
// line of its dash.
func (y *yamlWriter) collection(open json.Delim, depth int, after bool) error {
	if !y.in.More() {
		if _, err := y.in.Token(); err != nil {
			return err
		}
		return y.scalar(map[json.Delim]string{'{': "{}", '[': "[]"}[open], after)
	}
	dashed := after && bytes.HasSuffix(y.b.Bytes(), []byte("-"))
	if after && !dashed {
		y.b.WriteByte('\n')
	}
	for first := true; y.in.More(); first = false {
		switch {
		case first && dashed:
			y.b.WriteByte(' ')
		default:
			y.b.WriteString(strings.Repeat("  ", depth))
		}
		if open == '[' {
			y.b.WriteByte('-')
		} else {
			key, err := y.in.Token()
			if err != nil {
				return err
			}
			y.b.WriteString(yamlString(fmt.Sprint(key)) + ":")
		}
		if err := y.value(depth+1, true); err != nil {
			return err
		}
	}
	_, err := y.in.Token()
	return err
}

// yamlPlain is text that every reader of YAML 1.1 and 1.2 takes for a string as it
// stands: words that begin with a letter, none of them a keyword.
var (
	yamlPlain   = lazyregexp.New(`^[A-Za-z_/][A-Za-z0-9_./-]*( [A-Za-z0-9_./%,;()$-]*[A-Za-z0-9_./%,;()$])*$`)
	yamlKeyword = lazyregexp.New(`(?i)^(null|true|false|yes|no|on|off|y|n)$`)
)

// yamlString returns a scalar that reads as s: plain where that is safe, else
// double-quoted with the escapes that JSON and YAML have in common.
func yamlString(s string) string {
	if yamlPlain.MatchString(s) && !yamlKeyword.MatchString(s) {
		return s
	}
	return document.Quoted(s)
}
