package price

import (
	"strings"
	"testing"
)

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestOwnPricesAreBounded checks that an endless file is refused and leaves the book unchanged.
func TestOwnPricesAreBounded(t *testing.T) {
	book, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if err := book.Load(zeros{}); err == nil || !strings.Contains(err.Error(), "over 64 MiB") {
		t.Errorf("Load: %v", err)
	}
	if len(book.overlay) != 0 {
		t.Errorf("the book has %d own prices", len(book.overlay))
	}
}
