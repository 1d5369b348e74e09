package price

import (
	"embed"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// The embedded book: machines.csv and accelerators.csv hold facts; the other files hold prices in
// the overlay format, each with source and date. If a source has no date, such as a catalog at a
// commit or a price page, as_of is the day on which the price was added. Sizes of CPU families that
// a source lists at one size only are priced in proportion, and say so. Unconfirmed prices are left
// out.
//
//go:embed data/*.csv
var data embed.FS

// priceFiles are the parts of the embedded book that hold prices.
var priceFiles = []string{"data/on_demand.csv", "data/spot.csv", "data/managed.csv", "data/rates.csv"}

// Embedded returns the book that is embedded in the binary. It is parsed once; every call returns a
// separate Book, to which Load can add.
func Embedded() (*Book, error) {
	b, err := embedded()
	if err != nil {
		return nil, err
	}
	return &Book{
		machines: b.machines, catalog: b.catalog, accelerators: b.accelerators, base: b.base,
		commitments: b.commitments,
	}, nil
}

var embedded = sync.OnceValues(func() (*Book, error) {
	b := &Book{machines: map[string]Machine{}, accelerators: map[string]Accelerator{}, base: map[key]Entry{}}
	err := part("data/accelerators.csv", func(r io.Reader) error {
		return readAccelerators(r, func(a Accelerator) error {
			b.accelerators[canonical(a.Name)] = a
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	err = part("data/machines.csv", func(r io.Reader) error {
		return readMachines(r, func(m Machine) error {
			if _, ok := b.Accelerator(m.Accelerator); !ok && m.Accelerator != "" {
				return fmt.Errorf("accelerator %q of %s is unknown", m.Accelerator, m.Type)
			}
			b.machines[m.Type] = m
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	err = part("data/commitments.csv", func(r io.Reader) (err error) {
		b.commitments, err = readCommitments(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.catalog = ordered(b.machines)
	for _, name := range priceFiles {
		if err := part(name, func(r io.Reader) error { return readEntries(r, b.base) }); err != nil {
			return nil, err
		}
	}
	return b, nil
})

// part reads one file of the embedded book.
func part(name string, read func(io.Reader) error) error {
	f, err := fs.FS(data).Open(name)
	if err != nil {
		return fmt.Errorf("read the embedded price book: %w", err)
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("read the embedded price book: %s: %w", name, err)
	}
	return nil
}
