package certificate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig writes a kubeconfig for a server that never answers.
func kubeconfig(t *testing.T, path string, user *clientcmdapi.AuthInfo) {
	t.Helper()
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://127.0.0.1:1"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": user},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
}

// A kubelet uses its own kubeconfig as long as its certificate is valid, and
// otherwise the bootstrap kubeconfig, with which it gets a new certificate.
func TestClientCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		// own returns the contents of the file of the newest certificate, nil for
		// none, while the kubeconfig names it.
		own       func(a *authority) []byte
		age       time.Duration
		bootstrap bool
	}{
		"no kubeconfig": {bootstrap: true},
		"valid":         {own: func(a *authority) []byte { return slices.Concat(a.pair()) }},
		"expired":       {own: func(a *authority) []byte { return slices.Concat(a.pair()) }, age: lifetime + time.Minute, bootstrap: true},
		"without a key": {own: func(a *authority) []byte { cert, _ := a.pair(); return cert }, bootstrap: true},
		"empty":         {own: func(*authority) []byte { return []byte{} }, bootstrap: true},
		"another key": {own: func(a *authority) []byte {
			cert, _ := a.pair()
			_, key := a.pair()
			return slices.Concat(cert, key)
		}, bootstrap: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, a := t.TempDir(), newAuthority(t)
				o := &ClientOptions{
					Kubeconfig: filepath.Join(dir, "kubelet.conf"), BootstrapKubeconfig: filepath.Join(dir, "bootstrap.conf"),
					Directory: filepath.Join(dir, "pki"), NodeName: "n",
				}
				kubeconfig(t, o.BootstrapKubeconfig, &clientcmdapi.AuthInfo{Token: "bootstrap"})
				link := newest(clientName, o.Directory)
				if test.own != nil {
					if err := os.Mkdir(o.Directory, 0o700); err != nil {
						t.Fatal(err)
					}
					file := filepath.Join(o.Directory, clientName+"-1999-01-01-00-00-00.pem")
					write(t, file, test.own(a))
					if err := os.Symlink(file, link); err != nil {
						t.Fatal(err)
					}
					kubeconfig(t, o.Kubeconfig, &clientcmdapi.AuthInfo{ClientCertificate: link, ClientKey: link})
				}
				time.Sleep(test.age)
				requests, _, bootstrap, err := o.configs()
				if err != nil || bootstrap != test.bootstrap || (requests.BearerToken == "bootstrap") != test.bootstrap {
					t.Fatalf("bootstrap %v, error %v", bootstrap, err)
				}
				c, err := NewClient(o)
				if err != nil {
					t.Fatal(err)
				}
				if waits := c.Current() == nil; waits != test.bootstrap {
					t.Errorf("it waits for a certificate: %v", waits)
				}
				written, err := clientcmd.LoadFromFile(o.Kubeconfig)
				if err != nil {
					t.Fatal(err)
				}
				for _, user := range written.AuthInfos {
					if user.Token != "" || user.ClientCertificate != link || user.ClientKey != link {
						t.Errorf("its kubeconfig has %+v", user)
					}
				}
			})
		})
	}
}

// A kubelet whose certificate expires while it runs requests another with the bootstrap
// kubeconfig, as that is then.
func TestExpiredWhileRunning(t *testing.T) {
	dir, a := t.TempDir(), newAuthority(t)
	file, link := filepath.Join(dir, clientName+"-1999-01-01-00-00-00.pem"), newest(clientName, dir)
	write(t, file, slices.Concat(a.pair()))
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "kubelet.conf")
	kubeconfig(t, own, &clientcmdapi.AuthInfo{ClientCertificate: link, ClientKey: link})
	bootstrap := filepath.Join(dir, "bootstrap.conf")
	client := func(bootstrap string) *Client {
		t.Helper()
		c, err := NewClient(&ClientOptions{Kubeconfig: own, BootstrapKubeconfig: bootstrap, Directory: dir, NodeName: "n"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	alone, c := client(""), client(bootstrap)
	for _, token := range []string{"", "first", "second"} { // "": there is no file
		if token != "" {
			kubeconfig(t, bootstrap, &clientcmdapi.AuthInfo{Token: token})
		}
		if got := c.without(); got.BearerToken != token || (got.CertFile == link) != (token == "") {
			t.Errorf("with the token %q, the request has the token %q and the certificate %q", token, got.BearerToken, got.CertFile)
		}
		if got := alone.without(); got.BearerToken != "" || got.CertFile != link {
			t.Errorf("without a bootstrap kubeconfig, the request has the token %q and the certificate %q", got.BearerToken, got.CertFile)
		}
	}

	// So does one that had no certificate when it started.
	joined, err := NewClient(&ClientOptions{
		Kubeconfig: filepath.Join(dir, "joined.conf"), BootstrapKubeconfig: bootstrap, Directory: filepath.Join(dir, "joined"), NodeName: "n",
	})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig(t, bootstrap, &clientcmdapi.AuthInfo{Token: "third"})
	if got := joined.without().BearerToken; got != "third" {
		t.Errorf("the request has the token %q, not that of the file", got)
	}
	if err := os.Remove(bootstrap); err != nil {
		t.Fatal(err)
	}
	if got := joined.without().BearerToken; got != "second" {
		t.Errorf("without the file, the request has the token %q, not that of the first", got)
	}
}

// Without a bootstrap kubeconfig a damaged certificate is an error.
func TestDamagedClientCertificateWithoutBootstrap(t *testing.T) {
	dir := t.TempDir()
	o := &ClientOptions{Kubeconfig: filepath.Join(dir, "kubelet.conf"), Directory: dir, NodeName: "n"}
	file, link := filepath.Join(dir, clientName+"-1999-01-01-00-00-00.pem"), newest(clientName, dir)
	write(t, file, nil)
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	kubeconfig(t, o.Kubeconfig, &clientcmdapi.AuthInfo{ClientCertificate: link, ClientKey: link})
	if _, err := NewClient(o); err == nil {
		t.Error("there is no error")
	}
	if _, err := os.Lstat(link); err != nil {
		t.Errorf("the link is gone: %v", err)
	}
}
