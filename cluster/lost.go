package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/pki"
)

// lostKeys refuses to go on with an etcd's data where the keys that belong to
// it are gone. New ones would be of a cluster that no client, node and token
// of this one trusts.
func lostKeys(etcdDir string, api *apiserver.Flags) error {
	if _, err := os.Stat(filepath.Join(etcdDir, "member")); err != nil {
		return nil //nolint:nilerr // no data yet
	}
	files := []string{pki.ClusterAuthority + ".crt"}
	if len(api.ServiceAccounts.KeyFiles) == 0 && api.ServiceAccounts.SigningKeyFile == "" {
		files = append(files, "sa.key")
	}
	var lost []string
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(api.CertDir, file)); errors.Is(err, fs.ErrNotExist) {
			lost = append(lost, file)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("the cluster has data in %s, but its keys are gone from %s (%s): put them back from a backup; new keys would lock every client, node and service account out",
		etcdDir, api.CertDir, strings.Join(lost, ", "))
}
