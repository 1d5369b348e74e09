package document

import "fmt"

// CheckJSON bounds a JSON document before it is decoded: the nesting of objects and lists by
// MaxDepth, and the number of values. Violations are an *Error. It does not check the syntax.
func CheckJSON(name string, src []byte, maxValues int) error {
	depth, values, line, start := 0, 0, 1, 0
	wrong := func(i int, format string, args ...any) error {
		return &Error{File: name, Line: line, Column: i - start + 1, Message: fmt.Sprintf(format, args...)}
	}
	inText := false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '\n':
			line, start = line+1, i+1
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '[' || c == '{':
			if depth++; depth > MaxDepth {
				return wrong(i, "objects and lists are more than %d deep in one another", MaxDepth)
			}
			values++
		case c == ']' || c == '}':
			depth--
		case c == ',' || c == ':':
			if values++; values > maxValues {
				return wrong(i, "more than %d values", maxValues)
			}
		}
	}
	return nil
}
