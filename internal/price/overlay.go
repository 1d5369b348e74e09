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

// maxOwn is the largest file of own prices, in bytes. A price takes about 150.
const maxOwn = 64 << 20

// Load reads the user's own prices over the book's. It is strict: an unknown
// column, an incomplete row, a price given twice, or one that is not above zero is
// an error with its line, and the book stays as it was. So is a file over 64 MiB.
func (b *Book) Load(r io.Reader) error {
	read := map[key]Entry{}
	limited := &io.LimitedReader{R: r, N: maxOwn + 1}
	err := readEntries(limited, read)
	if limited.N <= 0 { // whatever else is wrong with what was cut off
		err = fmt.Errorf("the file is over %d MiB", maxOwn>>20)
	}
	if err != nil {
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

// Quarantined returns a book with the user's own prices over b that pass the checks of
// [Book.Update] against it, and those that do not: whoever can write the file could make
// anything cost nothing. The file is read as [Book.Load] does.
func (b *Book) Quarantined(r io.Reader) (*Book, []Refusal, error) {
	own := &Book{machines: b.machines, catalog: b.catalog, accelerators: b.accelerators, base: b.base}
	if err := own.Load(r); err != nil {
		return nil, nil, err
	}
	next, _, refused := b.Update(slices.Values(slices.SortedFunc(maps.Values(own.overlay), func(x, y Entry) int {
		return compareKeys(x.key(), y.key())
	})))
	return next, refused, nil
}
