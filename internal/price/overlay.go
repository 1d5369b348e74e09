package price

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// Save writes the user's own prices, those that came by Update or Load, in the
// form that Load reads. The embedded book is not written.
func (b *Book) Save(w io.Writer) error {
	own := slices.SortedFunc(maps.Values(b.overlay), func(x, y Entry) int { return compareKeys(x.key(), y.key()) })
	if err := writeEntries(w, own); err != nil {
		return fmt.Errorf("write prices: %w", err)
	}
	return nil
}

// Load reads the user's own prices over the book's. It is strict: an unknown
// column, an incomplete row, a price given twice, or one that is not above zero is
// an error with its line, and the book stays as it was.
func (b *Book) Load(r io.Reader) error {
	read := map[key]Entry{}
	if err := readEntries(r, read); err != nil {
		return fmt.Errorf("read prices: %w", err)
	}
	overlay := maps.Clone(b.overlay)
	if overlay == nil {
		overlay = map[key]Entry{}
	}
	maps.Copy(overlay, read)
	b.overlay = overlay
	return nil
}
