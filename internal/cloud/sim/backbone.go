package sim

import (
	"github.com/curfew-dev/curfew/internal/inventory"
)

// backbone adds the base of everything else: file systems, databases, secrets. None of it is
// wasted.
func (a *account) backbone() {
	a.fileSystem("home", east, "efs", &inventory.FileSystem{
		Sizes: inventory.Known(map[string]int64{"STANDARD": 1400 * gib, "IA": 6 * tib})})
	a.fileSystem("seg-scratch", east, "fsx-lustre", &inventory.FileSystem{
		CapacityGiB: 4800, StorageType: "SSD", ThroughputMBpsPerTiB: 125, Deployment: "PERSISTENT_2"})
	for _, x := range []struct {
		name, class, region, engine string
		owner                       owner
		count, storage              int64
		multiAZ                     bool
	}{
		{"feature-store", "db.r5.xlarge", east, "postgres", goran.production(), 1, 800, true},
		{"mlflow", "db.t3.medium", east, "postgres", ops.production(), 1, 100, false},
		{"retrieval-vectors", "r6g.large.search", east, "opensearch", fatima.production(), 3, 400, false},
	} {
		a.add(inventory.Resource{
			ID: x.name, Name: x.name + "-db", Kind: inventory.KindDatabase, Region: x.region, Type: x.class,
			State:     inventory.StateRunning,
			CreatedAt: a.ago(days(390)),
			Detail: &inventory.Database{
				Engine: x.engine, Count: x.count, MultiAZ: x.multiAZ, StorageGiB: x.storage, StorageType: "gp3"},
		}, "", 0, x.owner.as("data"), honest("in use"))
	}
	for i, name := range []string{
		"wandb-token", "huggingface-token", "feature-store-password", "mlflow-password",
		"label-studio-key", "slack-webhook",
		"registry-mirror",
	} {
		a.add(inventory.Resource{
			ID: "ml/" + name, Name: name, Kind: inventory.KindSecret, Region: east, State: inventory.StateAvailable,
			CreatedAt: a.ago(days(200)),
			Detail:    &inventory.Secret{LastAccessed: inventory.Known(a.ago(days(float64(i)*3 + 0.5)))},
		}, "", 0, ops.production(), honest("in use"))
	}
}

func (a *account) fileSystem(name, region, kind string, d *inventory.FileSystem) {
	a.add(inventory.Resource{
		Name: name + "-fs", Kind: inventory.KindFileSystem, Region: region, Type: kind,
		State:     inventory.StateAvailable,
		CreatedAt: a.ago(days(410)), Detail: d,
	}, "fs-", 17, ops.production(), honest("in use"))
}
