package clouds

import (
	"context"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/round"
)

// OpenActionable returns the account of a cloud that can be acted on.
func OpenActionable(ctx context.Context, req *runtime.Request, cfg config.Config, f Source) (*AWS, error) {
	book, err := req.PriceBook(cfg)
	if err != nil {
		return nil, err
	}
	lister, err := Lister(ctx, req, f, cfg, book, req.Now().UTC())
	if err != nil {
		return nil, err
	}
	cloud, ok := lister.(*AWS)
	if !ok {
		return nil, runtime.Invalid("--cloud %s: nothing is tagged there", f.Cloud)
	}
	return cloud, nil
}

// ec2ID matches the ids of EC2 by kind.
var ec2ID = lazyregexp.New(`^(i|vol|snap|ami|nat|eipalloc)-[0-9a-f]{8,17}$`)

var ec2Kinds = map[string]inventory.Kind{
	"i": inventory.KindInstance, "vol": inventory.KindVolume, "snap": inventory.KindSnapshot,
	"ami": inventory.KindImage, "nat": inventory.KindNATGateway, "eipalloc": inventory.KindAddress}

// FindResource searches the account for an id that no scan contains.
func FindResource(ctx context.Context, req *runtime.Request, cfg config.Config, f Source, id string) (inventory.Ref,
	error) {
	parts := ec2ID.FindStringSubmatch(id)
	if parts == nil {
		return inventory.Ref{}, inventory.ErrNotFound
	}
	f.Cloud = "aws"
	cloud, err := OpenActionable(ctx, req, cfg, f)
	if err != nil {
		return inventory.Ref{}, err
	}
	seen, err := cloud.List(ctx, round.Query{
		Now: req.Now().UTC(), Kinds: map[inventory.Kind]bool{ec2Kinds[parts[1]]: true},
	})
	if err != nil {
		return inventory.Ref{}, CloudError(err)
	}
	for _, r := range seen.Resources {
		if r.ID == id {
			return r.Ref(), nil
		}
	}
	return inventory.Ref{}, inventory.ErrNotFound
}
