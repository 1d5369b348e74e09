package price

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// Save writes the user's prices, from Update or Load, in the format that Load reads. The embedded
// book is not written.
func (b *Book) Save(w io.Writer) error {
	own := slices.SortedFunc(maps.Values(b.overlay), func(x, y Entry) int { return compareKeys(x.key(), y.key()) })
	if err := writeEntries(w, own); err != nil {
		return fmt.Errorf("write prices: %w", err)
	}
	return nil
}

// maxOverlaySize is the size limit of the user's price file in bytes. A price takes about 150.
const maxOverlaySize = 64 << 20

// Load reads the user's prices over the book's. It is strict: an unknown column, an incomplete row,
// a repeated price or one that is not positive is an error with its line, and leaves the book
// unchanged. So is a file over 64 MiB.
func (b *Book) Load(r io.Reader) error {
	read := map[key]Entry{}
	limited := &io.LimitedReader{R: r, N: maxOverlaySize + 1}
	err := readEntries(limited, read)
	if limited.N <= 0 { // takes precedence over errors in the truncated data
		err = fmt.Errorf("the file is over %d MiB", maxOverlaySize>>20)
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

// Quarantined returns the book with the user's prices that pass the checks of [Book.Update] against
// it, and the refused ones: otherwise anyone who can write the file could make a resource free. The
// file is read as by [Book.Load].
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
