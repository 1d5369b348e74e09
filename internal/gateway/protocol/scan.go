// Package protocol reads inference requests, merges those that may share a batch, and splits the
// answer of the batch again. It copies the text of tensor elements and never decodes them, so
// that a row has the same bytes through a batch and alone.
//
// The protocols are the Open Inference Protocol V2
// (https://github.com/kserve/open-inference-protocol), the V1 protocol of TensorFlow Serving and
// KServe (https://www.tensorflow.org/tfx/serving/api_rest), and the OpenAI HTTP API.
package protocol

import (
	"errors"
	"fmt"
)

// maxDepth bounds the nesting of JSON: no tensor has more dimensions.
const maxDepth = 64

// Error is a request that the gateway refuses as malformed.
type Error struct{ Message string }

// Error implements error.
func (e *Error) Error() string { return e.Message }

func malformed(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...)}
}

// errSyntax is wrapped by errors about text that is not JSON (RFC 8259).
var errSyntax = errors.New("not valid JSON")

// cursor reads JSON text strictly and returns parts of it, without decoding.
type cursor struct {
	b []byte
	i int
}

func (c *cursor) syntax(expected string) error {
	if c.i >= len(c.b) {
		return fmt.Errorf("%w: unexpected end, expected %s", errSyntax, expected)
	}
	return fmt.Errorf("%w: %q at byte %d, expected %s", errSyntax, c.b[c.i], c.i, expected)
}

func (c *cursor) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return
		}
	}
}

// peek returns the next byte after space, 0 at the end.
func (c *cursor) peek() byte {
	c.space()
	if c.i < len(c.b) {
		return c.b[c.i]
	}
	return 0
}

// take consumes one byte, which must be next.
func (c *cursor) take(want byte) error {
	if c.peek() != want || c.i >= len(c.b) {
		return c.syntax(fmt.Sprintf("%q", want))
	}
	c.i++
	return nil
}

// value consumes one value and returns its text.
func (c *cursor) value(depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: nested deeper than %d levels", errSyntax, maxDepth)
	}
	first := c.peek()
	start := c.i
	var err error
	switch {
	case first == '{':
		err = c.object(depth, func([]byte, []byte) error { return nil })
	case first == '[':
		_, err = c.array(depth, func([]byte) error { return nil })
	case first == '"':
		err = c.text()
	case first == 't':
		err = c.word("true")
	case first == 'f':
		err = c.word("false")
	case first == 'n':
		err = c.word("null")
	default:
		err = c.number()
	}
	if err != nil {
		return nil, err
	}
	return c.b[start:c.i], nil
}

func (c *cursor) word(want string) error {
	if len(c.b)-c.i < len(want) || string(c.b[c.i:c.i+len(want)]) != want {
		return c.syntax(want)
	}
	c.i += len(want)
	return nil
}

func (c *cursor) digits() error {
	start := c.i
	for c.i < len(c.b) && c.b[c.i]-'0' < 10 {
		c.i++
	}
	if c.i == start {
		return c.syntax("a digit")
	}
	return nil
}

// number consumes a number. Its integer part has no leading zero.
func (c *cursor) number() error {
	if c.i < len(c.b) && c.b[c.i] == '-' {
		c.i++
	}
	if c.i < len(c.b) && c.b[c.i] == '0' {
		c.i++
	} else if err := c.digits(); err != nil {
		return c.syntax("a value")
	}
	if c.i < len(c.b) && c.b[c.i] == '.' {
		c.i++
		if err := c.digits(); err != nil {
			return err
		}
	}
	if c.i < len(c.b) && (c.b[c.i] == 'e' || c.b[c.i] == 'E') {
		c.i++
		if c.i < len(c.b) && (c.b[c.i] == '+' || c.b[c.i] == '-') {
			c.i++
		}
		return c.digits()
	}
	return nil
}

// text consumes a string.
func (c *cursor) text() error {
	c.i++
	for c.i < len(c.b) {
		switch b := c.b[c.i]; {
		case b == '"':
			c.i++
			return nil
		case b < 0x20:
			return c.syntax("no control character in a string")
		case b == '\\':
			if err := c.escape(); err != nil {
				return err
			}
		default:
			c.i++
		}
	}
	return c.syntax("the end of a string")
}

func (c *cursor) escape() error {
	c.i++
	if c.i >= len(c.b) {
		return c.syntax("an escape")
	}
	switch c.b[c.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.i++
		return nil
	case 'u':
		c.i++
		for range 4 {
			if c.i >= len(c.b) || !isHex(c.b[c.i]) {
				return c.syntax("four hexadecimal digits")
			}
			c.i++
		}
		return nil
	}
	return c.syntax("an escape")
}

func isHex(b byte) bool { return b-'0' < 10 || b|0x20 >= 'a' && b|0x20 <= 'f' }

// object consumes an object and visits its members; keys are raw text with their quotes.
func (c *cursor) object(depth int, visit func(key, value []byte) error) error {
	if err := c.take('{'); err != nil {
		return err
	}
	if c.peek() == '}' {
		c.i++
		return nil
	}
	for {
		if c.peek() != '"' {
			return c.syntax("a key")
		}
		start := c.i
		if err := c.text(); err != nil {
			return err
		}
		key := c.b[start:c.i]
		if err := c.take(':'); err != nil {
			return err
		}
		value, err := c.value(depth + 1)
		if err != nil {
			return err
		}
		if err := visit(key, value); err != nil {
			return err
		}
		switch c.peek() {
		case ',':
			c.i++
		case '}':
			c.i++
			return nil
		default:
			return c.syntax("',' or '}'")
		}
	}
}

// array consumes an array, visits its elements, and returns how many there are.
func (c *cursor) array(depth int, visit func(element []byte) error) (int, error) {
	if err := c.take('['); err != nil {
		return 0, err
	}
	if c.peek() == ']' {
		c.i++
		return 0, nil
	}
	for n := 1; ; n++ {
		element, err := c.value(depth + 1)
		if err != nil {
			return 0, err
		}
		if err := visit(element); err != nil {
			return 0, err
		}
		switch c.peek() {
		case ',':
			c.i++
		case ']':
			c.i++
			return n, nil
		default:
			return 0, c.syntax("',' or ']'")
		}
	}
}

// end reports text after the only value of a document as an error.
func (c *cursor) end() error {
	if c.space(); c.i < len(c.b) {
		return c.syntax("the end of the document")
	}
	return nil
}

// members returns the members of an object by their keys. A key that appears twice is an error,
// because parsers disagree about which one counts.
func members(b []byte) (map[string][]byte, []string, error) {
	c := cursor{b: b}
	out := map[string][]byte{}
	var order []string
	if c.peek() != '{' {
		return nil, nil, c.syntax("an object")
	}
	err := c.object(0, func(key, value []byte) error {
		name, err := unquote(key)
		if err != nil {
			return err
		}
		if _, twice := out[name]; twice {
			return malformed("the key %.64q appears twice in one object", name)
		}
		out[name], order = value, append(order, name)
		return nil
	})
	if err == nil {
		err = c.end()
	}
	return out, order, err
}

// elements returns the elements of an array.
func elements(b []byte) ([][]byte, error) {
	c := cursor{b: b}
	var out [][]byte
	if _, err := c.array(0, func(e []byte) error { out = append(out, e); return nil }); err != nil {
		return nil, err
	}
	return out, c.end()
}

// inner returns the text between the brackets of an array.
func inner(array []byte) []byte { return array[1 : len(array)-1] }
