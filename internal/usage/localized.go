package usage

import "bytes"

// parseLocalized parses a number with separated thousands or a decimal comma, as spreadsheets write
// them, and returns the text after it. With comma, a single comma is the decimal sign; otherwise it
// separates thousands if groups of three digits follow.
func parseLocalized(field []byte, comma bool) (v float64, rest []byte, ok bool) {
	end := 0
	for end < len(field) {
		n := separator(field[end:])
		if digit := field[end] >= '0' && field[end] <= '9'; !digit && n == 0 {
			if end > 0 || field[end] != '-' && field[end] != '+' {
				break
			}
		} else if n > 0 && !threeDigits(field[end+n:]) && !decimalSign(field[end]) {
			break
		}
		end += max(n, 1)
	}
	text, rest := field[:end], trim(field[end:])
	decimal := bytes.LastIndexAny(text, ",.")
	if decimal >= 0 {
		sign := text[decimal]
		mixed := bytes.IndexByte(text, ',') >= 0 && bytes.IndexByte(text, '.') >= 0
		grouped := threeDigits(text[decimal+1:]) && len(text) == decimal+4 && text[0] != '0'
		switch {
		case bytes.Count(text, text[decimal:decimal+1]) > 1:
			decimal = -1
		case mixed:
		case sign == ',' && !comma && grouped:
			decimal = -1
		}
	}
	plain := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		switch n := separator(text[i:]); {
		case i == decimal:
			plain = append(plain, '.')
			i++
		case n > 0 && !threeDigits(text[i+n:]):
			return 0, nil, false
		case n > 0:
			i += n
		default:
			plain = append(plain, text[i])
			i++
		}
	}
	v, err := parseNumber(plain)
	return v, rest, err == nil
}

// separator returns the length in bytes of the digit separator at the start of a text: a comma, a
// point, an apostrophe or a space; 0 without one.
func separator(b []byte) int {
	for _, s := range []string{",", ".", "'", " ", "\u00a0", "\u202f", "\u2009", "\u2019"} {
		if bytes.HasPrefix(b, []byte(s)) {
			return len(s)
		}
	}
	return 0
}

func decimalSign(c byte) bool { return c == ',' || c == '.' }

// threeDigits reports whether a text begins with a group of exactly three digits.
func threeDigits(b []byte) bool {
	for i := range 3 {
		if i >= len(b) || b[i] < '0' || b[i] > '9' {
			return false
		}
	}
	return len(b) == 3 || b[3] < '0' || b[3] > '9'
}
