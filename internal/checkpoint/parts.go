package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// checkParts looks for damage in the parts that the save would use again, so that their content is
// stored once more. A part that is missing or has another size is damaged; one that was touched
// since the newest manifest was written is read and verified. A final save has no time to read: it
// stores such content again.
func (s *saveRun) checkParts(ctx context.Context) error {
	a, final := s.a, !s.o.Deadline.IsZero()
	use := map[string]*storedPart{}
	if !s.o.Full || final {
		for _, p := range a.parts {
			use[p.Key] = p
		}
	}
	for _, at := range a.index {
		use[at.part.Key] = at.part
	}
	if len(use) == 0 {
		return nil
	}
	written, err := a.run.touched(ctx, a.newestKey)
	if err != nil {
		return err
	}
	damaged := map[string]string{}
	for key := range use {
		damaged[key] = "missing"
	}
	var doubtful []Part
	err = a.run.Store.List(ctx, partPrefix, func(i Info) error {
		p := use[i.Key]
		switch {
		case p == nil:
		case i.Size != p.Size:
			damaged[i.Key] = fmt.Sprintf("%d bytes instead of %d", i.Size, p.Size)
		case i.touched().After(written) && final:
			damaged[i.Key] = "changed since it was stored, and not verified for lack of time"
		case i.touched().After(written):
			doubtful = append(doubtful, p.Part)
			delete(damaged, i.Key)
		default:
			delete(damaged, i.Key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for damaged parts: %w", err)
	}
	if err := a.run.verifyDoubtful(ctx, doubtful, s.o.Uploads, damaged); err != nil {
		return fmt.Errorf("look for damaged parts: %w", err)
	}
	s.dropDamaged(damaged)
	return nil
}

// touched returns when a manifest was last touched, by the clock of the store; zero if there is
// none.
func (r Run) touched(ctx context.Context, manifest string) (at time.Time, err error) {
	if manifest == "" {
		return at, nil
	}
	err = r.Store.List(ctx, manifest, func(i Info) error {
		if i.Key == manifest {
			at = i.touched()
		}
		return nil
	})
	if err != nil {
		return at, fmt.Errorf("look up %s: %w", manifest, err)
	}
	return at, nil
}

// verifyDoubtful reads parts and adds the damaged ones.
func (r Run) verifyDoubtful(ctx context.Context, parts []Part, workers int, damaged map[string]string) error {
	all := make([]int, len(parts))
	for i := range all {
		all[i] = i
	}
	var mu sync.Mutex
	m := Manifest{Parts: parts}
	return r.eachPartResult(ctx, m, all, workers, func(i int, _ []byte, _ *decoder, err error) error {
		if !isBroken(err) {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		damaged[parts[i].Key] = "it does not fit its checksums"
		if errors.Is(err, ErrNotFound) {
			damaged[parts[i].Key] = "missing"
		}
		return nil
	})
}

// dropDamaged forgets the chunks of damaged parts.
func (s *saveRun) dropDamaged(damaged map[string]string) {
	s.damaged = damaged
	if len(damaged) == 0 {
		return
	}
	for sum, at := range s.a.index {
		if damaged[at.part.Key] != "" {
			delete(s.a.index, sum)
		}
	}
	keys := make([]string, 0, len(damaged))
	for key := range damaged {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	s.notes = append(s.notes, fmt.Sprintf(
		"damaged: %d of the parts of earlier snapshots (%s: %s); their content was stored again, and curfew checkpoint verify "+
			"names the snapshots that need them", len(keys), keys[0], damaged[keys[0]]))
}

// isDamaged reports whether an entry of the newest snapshot needs a damaged part.
func (s *saveRun) isDamaged(e Entry) bool {
	return slices.ContainsFunc(e.Chunks, func(c Chunk) bool { return s.damaged[s.a.parts[c.Part].Key] != "" })
}

// createPart stores a part. The key has the attempt and the SHA-256 of the content, so an object
// that exists was stored by this attempt: it is replaced if it was damaged since.
func (a *Attempt) createPart(ctx context.Context, p Part, data []byte) error {
	err := a.run.Store.Create(ctx, p.Key, data)
	if !errors.Is(err, ErrExists) {
		return err
	}
	if _, err = a.run.readPart(ctx, p); !errors.Is(err, ErrDamaged) {
		return err
	}
	if err := a.checkHeld(ctx); err != nil {
		return err
	}
	if err := a.run.Store.Delete(ctx, []string{p.Key}); err != nil {
		return err
	}
	return a.run.Store.Create(ctx, p.Key, data)
}
