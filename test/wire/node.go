package wire

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Node is an XML element: text or children.
type Node struct {
	Name  string
	Attrs []xml.Attr
	Text  string
	Kids  []*Node
}

// E returns an element with children.
func E(name string, kids ...*Node) *Node { return &Node{Name: name, Kids: kids} }

// T returns an element with text; v is printed with fmt.
func T(name string, v any) *Node { return &Node{Name: name, Text: fmt.Sprint(v)} }

// Kid returns the first child with that name, or nil.
func (n *Node) Kid(name string) *Node {
	for _, k := range n.Kids {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Find returns the first element with that name at any depth, or nil.
func (n *Node) Find(name string) *Node {
	if n.Name == name {
		return n
	}
	for _, k := range n.Kids {
		if f := k.Find(name); f != nil {
			return f
		}
	}
	return nil
}

// All returns the elements with that name at any depth.
func (n *Node) All(name string) []*Node {
	var out []*Node
	if n.Name == name {
		out = append(out, n)
	}
	for _, k := range n.Kids {
		out = append(out, k.All(name)...)
	}
	return out
}

// parseXML reads a document as a tree; prefixes and attributes are kept as written.
func parseXML(b []byte) (*Node, error) {
	d := xml.NewDecoder(bytes.NewReader(b))
	root := &Node{}
	stack := []*Node{root}
	for {
		tok, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read XML: %w", err)
		}
		top := stack[len(stack)-1]
		switch t := tok.(type) {
		case xml.StartElement:
			n := &Node{Name: prefixed(t.Name), Attrs: t.Copy().Attr}
			top.Kids = append(top.Kids, n)
			stack = append(stack, n)
		case xml.EndElement:
			if len(stack) == 1 || top.Name != prefixed(t.Name) {
				return nil, fmt.Errorf("read XML: </%s> closes nothing", prefixed(t.Name))
			}
			stack = stack[:len(stack)-1]
		case xml.CharData:
			top.Text += string(t)
		}
	}
	if len(stack) != 1 || len(root.Kids) != 1 {
		return nil, errors.New("read XML: not one closed document")
	}
	return root.Kids[0], nil
}

func prefixed(n xml.Name) string {
	if n.Space != "" {
		return n.Space + ":" + n.Local
	}
	return n.Local
}

// Bytes prints the tree as a document.
func (n *Node) Bytes() []byte {
	var b bytes.Buffer
	b.WriteString(xml.Header)
	n.write(&b)
	return b.Bytes()
}

func (n *Node) write(b *bytes.Buffer) {
	b.WriteByte('<')
	b.WriteString(n.Name)
	for _, a := range n.Attrs {
		b.WriteByte(' ')
		b.WriteString(prefixed(a.Name))
		b.WriteString(`="`)
		xml.EscapeText(b, []byte(a.Value))
		b.WriteByte('"')
	}
	b.WriteByte('>')
	if len(n.Kids) == 0 {
		xml.EscapeText(b, []byte(n.Text))
	} else if s := strings.TrimSpace(n.Text); s != "" {
		xml.EscapeText(b, []byte(s))
	}
	for _, k := range n.Kids {
		k.write(b)
	}
	b.WriteString("</")
	b.WriteString(n.Name)
	b.WriteByte('>')
}
