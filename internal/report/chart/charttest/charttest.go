// Package charttest checks the readability of pictures: texts that overlap, leave the picture or
// are too small, and values missing in the alternative text.
package charttest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// leastText is the minimum height of text in pixels.
const leastText = 11

// helvetica is the advance of ASCII characters from 32 on, in thousandths of the size:
// the widths of Helvetica's font metrics, which common sans-serif fonts are close to.
var helvetica = [...]int{278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
	556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
	1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667,
	944, 667, 667, 611, 278, 278, 278, 469, 556,
	333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500,
	722, 500, 500, 500, 334, 260, 334, 584}

// Width estimates the width of a text at a font size.
func Width(s string, size float64) float64 {
	w := 0
	for _, r := range s {
		if i := int(r) - ' '; i >= 0 && i < len(helvetica) {
			w += helvetica[i]
		} else {
			w += 600 * max(1, ansi.StringWidth(string(r)))
		}
	}
	return float64(w) * size / 1000
}

// text is a text of a picture with its bounding box.
type text struct {
	s                        string
	left, top, right, bottom float64
}

var minWidth = regexp.MustCompile(`\bleast-([0-9]+)\b`)

// TB is implemented by tests and property tests.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Check reads every svg element of a page or fragment and reports readability problems: texts that
// overlap or leave the picture, texts under 11 pixels at the minimum width of the picture, and
// pictures without a role, a name or values in the alternative text.
func Check(tb TB, markup string) {
	tb.Helper()
	rest, n := markup, 0
	for {
		at := strings.Index(rest, "<svg")
		if at < 0 {
			break
		}
		length := strings.Index(rest[at:], "</svg>")
		if length < 0 {
			tb.Errorf("a picture has no end")
			return
		}
		n++
		for _, problem := range problems(rest[at : at+length+len("</svg>")]) {
			tb.Errorf("picture %d: %s", n, problem)
		}
		rest = rest[at+length:]
	}
	if n == 0 {
		tb.Errorf("there is no picture")
	}
}

// problems returns the problems of one picture.
func problems(svg string) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	d := xml.NewDecoder(strings.NewReader(svg))
	var texts []text
	var open *text
	var x, y, size, viewWidth, viewHeight, least float64
	var anchor, words string
	depth, titled := 0, false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return append(out, "it is not well formed: "+err.Error())
		}
		switch e := token.(type) {
		case xml.StartElement:
			depth++
			attributes := map[string]string{}
			for _, a := range e.Attr {
				attributes[a.Name.Local] = a.Value
			}
			number := func(name string) float64 {
				v, _ := strconv.ParseFloat(strings.TrimSuffix(attributes[name], "px"), 64)
				return v
			}
			switch e.Name.Local {
			case "svg":
				if attributes["role"] != "img" {
					say("its role is %q, want img", attributes["role"])
				}
				_, _ = fmt.Sscanf(attributes["viewBox"], "0 0 %f %f", &viewWidth, &viewHeight)
				size = number("font-size")
				if m := minWidth.FindStringSubmatch(attributes["class"]); m != nil {
					least, _ = strconv.ParseFloat(m[1], 64)
				}
			case "text":
				x, y, anchor = number("x"), number("y"), attributes["text-anchor"]
				open = &text{}
				if s := number("font-size"); s > 0 && s != size {
					say("a text has a size of its own: %g", s)
				}
			case "title", "desc":
				var s string
				if err := d.DecodeElement(&s, &e); err != nil {
					return append(out, err.Error())
				}
				if depth == 2 {
					words += s
					titled = titled || e.Name.Local == "title" && s != ""
				}
				depth--
			}
		case xml.CharData:
			if open != nil {
				open.s += string(e)
			}
		case xml.EndElement:
			depth--
			if e.Name.Local == "text" && open != nil {
				w := Width(open.s, size)
				switch anchor {
				case "middle":
					x -= w / 2
				case "end":
					x -= w
				}
				open.left, open.right, open.top, open.bottom = x, x+w, y-0.72*size, y+0.2*size
				texts, open = append(texts, *open), nil
			}
		}
	}
	if !titled {
		say("it has no title")
	}
	if !strings.ContainsAny(words, "0123456789") && !strings.Contains(words, "nothing to draw") {
		say("its figures are not in the alternative text: %q", words)
	}
	if viewWidth <= 0 || least <= 0 || size*least/viewWidth < leastText {
		say("text of %g in a box of %g is under %d pixels at a width of %g", size, viewWidth, leastText, least)
	}
	for i, t := range texts {
		if t.left < -0.5 || t.right > viewWidth+0.5 || t.top < -0.5 || t.bottom > viewHeight+0.5 {
			say("%q leaves the picture: %.0f to %.0f of %.0f, %.0f to %.0f of %.0f", t.s, t.left,
				t.right, viewWidth, t.top,
				t.bottom, viewHeight)
		}
		for _, o := range texts[:i] {
			if t.left < o.right && o.left < t.right && t.top < o.bottom && o.top < t.bottom {
				say("%q and %q overlap", t.s, o.s)
			}
		}
	}
	return out
}
