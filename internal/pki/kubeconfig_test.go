package pki

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestMergeAndRemoveLeaveOtherEntriesAlone(t *testing.T) {
	dir := t.TempDir()
	d := open(t, filepath.Join(dir, "pki"))
	path := filepath.Join(dir, ".kube", "config")
	mine := Kubeconfig{Cluster: "coracle", Server: "https://127.0.0.1:6443", User: "coracle-admin",
		Authority: d.Cluster(), Identity: issue(t, d, Admin()), Embed: true}
	theirs := mine
	theirs.Cluster, theirs.User = "other", "other-admin"
	if err := theirs.Merge(path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := mine.Merge(path); err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if config.CurrentContext != "coracle" || len(config.Clusters) != 2 {
		t.Errorf("current context %q of %d clusters", config.CurrentContext, len(config.Clusters))
	}
	if _, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig(); err != nil {
		t.Error(err)
	}
}
