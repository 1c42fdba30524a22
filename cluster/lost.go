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

// checkKeys returns an error if there is etcd data without the keys that belong
// to it. No client, node or token of the cluster would trust new keys.
func checkKeys(etcdDir string, api *apiserver.Options) error {
	if _, err := os.Stat(filepath.Join(etcdDir, "member")); err != nil {
		return nil //nolint:nilerr // no data yet
	}
	files := []string{pki.ClusterAuthority + ".crt"}
	if len(api.ServiceAccounts.KeyFiles) == 0 && api.ServiceAccounts.SigningKeyFile == "" {
		files = append(files, "sa.key")
	}
	var lost []string
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(api.Serving.CertDir, file)); errors.Is(err, fs.ErrNotExist) {
			lost = append(lost, file)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("the cluster has data in %s, but its keys are gone from %s (%s): restore them from a backup; new keys would lock every client, node and service account out",
		etcdDir, api.Serving.CertDir, strings.Join(lost, ", "))
}
