package base

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/server/options"
)

// CheckValues reports values of flags that were given which no component can
// use, so that a command ends with what is wrong before anything starts. What
// flags mean together is for the components' Validate.
func CheckValues(fs *pflag.FlagSet) error {
	var errs []error
	fs.Visit(func(f *pflag.Flag) {
		if err := checkValue(f); err != nil && !isMade(fs, f, err) {
			errs = append(errs, fmt.Errorf("--%s=%s: %w", f.Name, strings.Trim(f.Value.String(), "[]"), err))
		}
	})
	return errors.Join(errs...)
}

// isMade tells whether a file is missing that the component itself makes: the
// authorities and keys in its directory of certificates.
func isMade(fs *pflag.FlagSet, f *pflag.Flag, err error) bool {
	made := fs.Lookup("cert-dir")
	return made != nil && errors.Is(err, iofs.ErrNotExist) && filepath.Dir(f.Value.String()) == filepath.Clean(made.Value.String())
}

func checkValue(f *pflag.Flag) error {
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	check := checkOf(f)
	for _, value := range values {
		if err := check(value); err != nil {
			return err
		}
	}
	return nil
}

// checkOf is how a flag's value, or each one of a list, is checked: by what the
// flag is called, or else by its type.
func checkOf(f *pflag.Flag) func(string) error {
	switch f.Name {
	case "bind-address", "address", "cluster-dns", "node-ip":
		return isAddress
	case "cluster-cidr", "pod-cidr", "service-cluster-ip-range":
		return areRanges
	case "cluster-domain", "hostname-override", "leader-elect-resource-name", "leader-elect-resource-namespace", "scheduler-name":
		return isName
	case "etcd-servers", "manifest-url":
		return IsURL
	case "container-runtime-endpoint", "image-service-endpoint":
		return isSocket
	case "container-log-max-size":
		return isQuantity
	case "cgroup-root":
		return isAbsolute
	case "cgroup-driver":
		return oneOf("cgroupfs", "systemd")
	case "leader-elect-resource-lock":
		return oneOf("leases")
	case "nftables-table":
		return isTable
	case "audit-log-format":
		return oneOf("legacy", "json")
	case "audit-log-mode", "audit-webhook-mode":
		return oneOf(options.AllowedModes...)
	case "audit-log-version", "audit-webhook-version":
		return oneOf(auditv1.SchemeGroupVersion.String())
	case "requestheader-extra-headers-prefix", "requestheader-group-headers", "requestheader-uid-headers", "requestheader-username-headers":
		return isHeader
	case "external-hostname":
		return isHost
	case "allowed-unsafe-sysctls":
		return isSysctl
	case "pod-max-pids":
		return isLimit
	case "terminated-pod-gc-threshold": // less than 0 is none
		return func(string) error { return nil }
	}
	if slices.Contains(PathFlags, f.Name) && !slices.Contains([]string{"audit-log-path", "cert-dir", "config", "pod-manifest-path", "root-dir"}, f.Name) {
		return isFile
	}
	switch f.Value.Type() {
	case "int", "int32", "int64":
		if f.Name == "port" || strings.HasSuffix(f.Name, "-port") {
			return isPort
		}
		return isPositive
	case "float32", "float64":
		return isPositive
	case "duration":
		return isDuration
	}
	return func(string) error { return nil }
}

func isAddress(s string) error {
	if net.ParseIP(s) == nil {
		return fmt.Errorf("%q is not an IP address", s)
	}
	return nil
}

func areRanges(s string) error {
	for r := range strings.SplitSeq(s, ",") {
		if _, _, err := net.ParseCIDR(strings.TrimSpace(r)); err != nil && s != "" {
			return fmt.Errorf("%q: want a range such as 10.96.0.0/16", r)
		}
	}
	return nil
}

func isName(s string) error {
	if problems := validation.IsDNS1123Subdomain(s); len(problems) > 0 && s != "" {
		return errors.New(problems[0])
	}
	return nil
}

func IsURL(s string) error {
	if u, err := url.Parse(s); s != "" && (err != nil || u.Scheme == "" || u.Host == "" && u.Path == "") {
		return fmt.Errorf("%q: want a URL such as https://10.0.0.1:2379", s)
	}
	return nil
}

func isSocket(s string) error {
	if path, ok := strings.CutPrefix(s, "unix://"); s != "" && (!ok || !filepath.IsAbs(path)) {
		return fmt.Errorf("%q: want a socket, as unix:///run/containerd/containerd.sock", s)
	}
	return nil
}

func isQuantity(s string) error {
	if _, err := resource.ParseQuantity(s); err != nil {
		return fmt.Errorf("%q: want a quantity such as 10Mi", s)
	}
	return nil
}

func isAbsolute(s string) error {
	if s != "" && !filepath.IsAbs(s) {
		return fmt.Errorf("%q: want an absolute path", s)
	}
	return nil
}

func isHeader(s string) error {
	if problems := validation.IsHTTPHeaderName(s); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a header: %s", s, problems[0])
	}
	return nil
}

// isHost is a name or an address, with or without a port.
func isHost(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = s, "443"
	}
	if net.ParseIP(strings.Trim(host, "[]")) == nil && isName(host) != nil || isPort(port) != nil {
		return fmt.Errorf("%q: want a host, as api.example.com or api.example.com:6443", s)
	}
	return nil
}

// isSysctl is the name of a sysctl, or the beginning of some and a star.
func isSysctl(s string) error {
	if strings.Trim(strings.ToLower(strings.TrimSuffix(s, "*")), "abcdefghijklmnopqrstuvwxyz0123456789._/-") != "" {
		return fmt.Errorf("%q: want a sysctl, as kernel.msgmax or net.*", s)
	}
	return nil
}

// isLimit is a number, or -1 for none.
func isLimit(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < -1 {
		return errors.New("can not be less than -1, which is no limit")
	}
	return nil
}

// isTable is what nft(8) takes for an identifier.
func isTable(s string) error {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && r != '.' && r != '/' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
	if s == "" || !plain {
		return fmt.Errorf("%q: want a name of letters, digits and dashes", s)
	}
	return nil
}

func isFile(s string) error {
	if s == "" {
		return nil
	}
	_, err := os.Stat(s)
	return err
}

func oneOf(values ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(values, s) {
			return fmt.Errorf("%q: want %s", s, strings.Join(values, " or "))
		}
		return nil
	}
}

func isPort(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%s is not a port, 0 to 65535", s)
	}
	return nil
}

func isPositive(s string) error {
	if n, err := strconv.ParseFloat(s, 64); err != nil || n < 0 {
		return errors.New("can not be negative")
	}
	return nil
}

func isDuration(s string) error {
	if d, err := time.ParseDuration(s); err != nil || d < 0 {
		return errors.New("can not be negative")
	}
	return nil
}
