package store

import "testing"

func BenchmarkSum(b *testing.B) {
	page := make([]byte, diskPage)
	for i := range page {
		page[i] = byte(i * 7)
	}
	b.SetBytes(diskPage)
	for b.Loop() {
		seal(page, 4096)
	}
}

func TestSumNoticesFlipsAndPlaces(t *testing.T) {
	page := make([]byte, diskPage)
	for i := range page {
		page[i] = byte(i * 7)
	}
	seal(page, 8192)
	if !intact(page, 8192) {
		t.Fatal("a sealed page is not intact")
	}
	if intact(page, 4096) {
		t.Error("a page in the place of another one is taken for it")
	}
	for bit := range diskPage * 8 {
		page[bit/8] ^= 1 << (bit % 8)
		if intact(page, 8192) {
			t.Errorf("bit %d is flipped, and the page is taken", bit)
		}
		page[bit/8] ^= 1 << (bit % 8)
	}
	if intact(make([]byte, diskPage), 0) {
		t.Error("an empty page is taken")
	}
}
