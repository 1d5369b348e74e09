package policy

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// position returns the position in the file of a character of a text: line counts from 1 and column
// from 0 within the text. Quotes, escapes, block scalars and folded lines are followed, because the
// other characters of the text have the same order in the file.
func (d *reader) position(n ast.Node, line, column int) (int, int) {
	start, value, quote := n.GetToken(), "", byte(0)
	switch n := n.(type) {
	case *ast.StringNode:
		value = n.Value
		switch n.Token.Type {
		case token.DoubleQuoteType:
			quote = '"'
		case token.SingleQuoteType:
			quote = '\''
		}
	case *ast.LiteralNode:
		start, value = n.Start, n.Value.Value
	}
	at := cursor{src: []rune(string(d.Source)), line: 1, column: 1}
	for at.hasMore() && (at.line < start.Position.Line || at.line == start.Position.Line &&
		at.column < start.Position.Column) {
		at.step()
	}
	if _, block := n.(*ast.LiteralNode); block {
		for at.hasMore() && at.line == start.Position.Line {
			at.step()
		}
	} else if quote != 0 {
		at.step()
	}
	index := runeIndex(value, line, column)
	found := at
	for i, r := range []rune(value) {
		if i > index {
			break
		}
		if unicode.IsSpace(r) {
			continue // a space, or a line break with indentation
		}
		for at.hasMore() {
			before := at
			if got := at.read(quote); got == r {
				found = before
				break
			}
		}
	}
	return found.line, found.column
}

// runeIndex returns the index of a character in a text by line and column.
func runeIndex(text string, line, column int) int {
	n := 0
	for ; line > 1; line-- {
		first, rest, ok := strings.Cut(text, "\n")
		if !ok {
			break
		}
		n, text = n+utf8.RuneCountInString(first)+1, rest
	}
	return n + column
}

// cursor iterates over the characters of a file.
type cursor struct {
	src          []rune
	index        int
	line, column int
}

func (c *cursor) hasMore() bool { return c.index < len(c.src) }

func (c *cursor) step() {
	if !c.hasMore() {
		return
	}
	if c.src[c.index] == '\n' {
		c.line, c.column = c.line+1, 0
	}
	c.index, c.column = c.index+1, c.column+1
}

// read returns the next character of a text with the given quotes.
func (c *cursor) read(quote byte) rune {
	r := c.src[c.index]
	c.step()
	switch {
	case !c.hasMore():
	case quote == '\'' && r == '\'' && c.src[c.index] == '\'':
		c.step()
	case quote == '"' && r == '\\':
		r = c.src[c.index]
		c.step()
		if strings.ContainsRune("nrt0abvef\n", r) {
			return ' '
		}
		if digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[r]; digits > 0 {
			r = 0
			for ; digits > 0 && c.hasMore(); digits-- {
				r = r<<4 + rune(strings.IndexRune("0123456789abcdef", unicode.ToLower(c.src[c.index])))
				c.step()
			}
		}
	}
	return r
}
