package chart

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

type rgb [3]float64

// linear converts a palette color to linear light.
func linear(t *testing.T, hex string) rgb {
	var out rgb
	for i := range out {
		v, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(v) / 255
		if c <= 0.04045 {
			out[i] = c / 12.92
		} else {
			out[i] = math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return out
}

// deuteranopia simulates full deuteranopia in linear light: Machado, Oliveira and
// Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
// 2009, severity 1.0.
func deuteranopia(c rgb) rgb {
	m := [3]rgb{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}
	var out rgb
	for i, row := range m {
		out[i] = min(max(row[0]*c[0]+row[1]*c[1]+row[2]*c[2], 0), 1)
	}
	return out
}

// lab converts linear light to CIE L*a*b* under D65.
func lab(c rgb) rgb {
	x := (0.4124*c[0] + 0.3576*c[1] + 0.1805*c[2]) / 0.95047
	y := 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
	z := (0.0193*c[0] + 0.1192*c[1] + 0.9505*c[2]) / 1.08883
	f := func(v float64) float64 {
		if v > 216.0/24389 {
			return math.Cbrt(v)
		}
		return (24389.0/27*v + 16) / 116
	}
	return rgb{116*f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))}
}

func distance(a, b rgb) float64 {
	a, b = lab(a), lab(b)
	return math.Sqrt(math.Pow(a[0]-b[0], 2) + math.Pow(a[1]-b[1], 2) + math.Pow(a[2]-b[2], 2))
}

// contrast is the contrast ratio of the Web Content Accessibility Guidelines.
func contrast(a, b rgb) float64 {
	light := func(c rgb) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	return max(light(a)/light(b), light(b)/light(a))
}

// TestPaletteUnderDeuteranopia checks that any two colors differ visibly (CIE76), with full color
// vision and deuteranopia, on light and dark pages, and that strong colors stand out against the
// page.
func TestPaletteUnderDeuteranopia(t *testing.T) {
	same := func(c rgb) rgb { return c }
	for _, theme := range []struct {
		name, page string
		of         func(i int) string
	}{
		{"light", "#ffffff", func(i int) string { return palette[i].light }},
		{"dark", "#1a1f28", func(i int) string { return palette[i].dark }},
	} {
		for sight, see := range map[string]func(rgb) rgb{"full": same, "deuteranopia": deuteranopia} {
			for i := range palette {
				for k := range i {
					if d := distance(see(linear(t, theme.of(i))), see(linear(t, theme.of(k)))); d < 20 {
						t.Errorf("%s, %s: %s and %s differ by %.1f, want at least 20",
							theme.name, sight, palette[i].name,
							palette[k].name, d)
					}
				}
			}
			// The pair with opposite meanings must differ most.
			if d := distance(see(linear(t, theme.of(int(Blue)))), see(linear(t, theme.of(int(Orange))))); d < 60 {
				t.Errorf("%s, %s: blue and orange differ by %.1f, want at least 60", theme.name, sight, d)
			}
		}
		for _, c := range []Color{Blue, Orange, Gray, Ink} {
			if got := contrast(linear(t, theme.of(int(c))), linear(t, theme.page)); got < 3 {
				t.Errorf("%s: %s has a contrast of %.2f to the page, want at least 3",
					theme.name, palette[c].name, got)
			}
		}
	}
	// Check the check: red and green of the same lightness are indistinguishable with deuteranopia.
	if d := distance(deuteranopia(linear(t, "#b06040")), deuteranopia(linear(t, "#6f8040"))); d > 20 {
		t.Errorf("red and green differ by %.1f under deuteranopia, so the simulation is wrong", d)
	}
	for _, c := range palette {
		if strings.Count(CSS, "--"+c.name+": "+c.light) != 2 || !strings.Contains(CSS, "--"+c.name+": "+c.dark) {
			t.Errorf("%s is not in the style sheet", c.name)
		}
	}
}
