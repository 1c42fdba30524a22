// Package flagvalue checks the values of flags. The definition of a flag names
// the kind of its value:
//
//	fs.StringVar(&o.TokenFile, "token-auth-file", o.TokenFile, "...")
//	flagvalue.Is(fs, flagvalue.File, "token-auth-file")
//
// Numbers and durations without a kind must not be negative, and numbers of
// flags called "port" or "...-port" are ports.
package flagvalue

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
)

// Kind is the kind of a flag's value, or of each value of a list.
type Kind string

// The kinds. Path and File are relative to the directory in which the flag is
// given.
const (
	Path     Kind = "path"     // a file or a directory, which need not exist
	File     Kind = "file"     // a file that exists
	KeyPair  Kind = "keyPair"  // CERT,KEY or CERT,KEY:NAMES
	Absolute Kind = "absolute" // an absolute path, below a root of its own
	Address  Kind = "address"  // an IP address
	Ranges   Kind = "ranges"   // CIDRs, separated by commas
	Name     Kind = "name"     // a DNS subdomain
	URL      Kind = "url"
	Socket   Kind = "socket" // unix:///PATH
	Host     Kind = "host"   // a name or an address, with or without a port
	Header   Kind = "header" // the name of an HTTP header
	Quantity Kind = "quantity"
	Sysctl   Kind = "sysctl" // the name of a sysctl, or a prefix and a star
	Table    Kind = "table"  // an identifier of nft(8)
	Limit    Kind = "limit"  // a number, or -1 for no limit
	Listen   Kind = "listen" // an IP address and a port, an IP address, or nothing
	// Interface is the name of a network interface, or what it begins with.
	Interface Kind = "interface"
	// NodePorts is a CIDR, or primary, localhost or all.
	NodePorts Kind = "nodePorts"
	Number    Kind = "number" // any number

	oneOf Kind = "oneOf"
)

const (
	kindAnnotation   = "coracle/kind"
	valuesAnnotation = "coracle/values"
)

// Is says of what kind the values of flags are. It panics if fs lacks one of
// the flags.
func Is(fs *pflag.FlagSet, kind Kind, names ...string) {
	for _, name := range names {
		annotate(fs, name, kindAnnotation, string(kind))
	}
}

// OneOf says that a flag takes only some values. It panics if fs lacks the flag.
func OneOf(fs *pflag.FlagSet, name string, values ...string) {
	Is(fs, oneOf, name)
	annotate(fs, name, valuesAnnotation, values...)
}

func annotate(fs *pflag.FlagSet, name, key string, values ...string) {
	if err := fs.SetAnnotation(name, key, values); err != nil {
		panic(err) // the flag is defined in the line above
	}
}

// KindOf returns what the value of a flag is, or "" if its type says all.
func KindOf(f *pflag.Flag) Kind {
	if kind := f.Annotations[kindAnnotation]; len(kind) == 1 {
		return Kind(kind[0])
	}
	return ""
}

// Check returns the errors in the values of flags that were given, so that a
// command fails before it starts anything. The components' Validate checks
// combinations of flags.
func Check(fs *pflag.FlagSet) error {
	var errs []error
	fs.Visit(func(f *pflag.Flag) {
		if err := checkValue(f); err != nil && !isMade(fs, f, err) {
			errs = append(errs, fmt.Errorf("--%s=%s: %w", f.Name, strings.Trim(f.Value.String(), "[]"), err))
		}
	})
	return errors.Join(errs...)
}

// AbsolutePath makes the path in a value of a flag absolute. A relative one begins
// at dir, or at the working directory if dir is "". AbsolutePath leaves values that
// are no paths, such as "-" for standard output.
func AbsolutePath(f *pflag.Flag, dir, value string) (string, error) {
	absolute := func(path string) (string, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return filepath.Abs(path)
	}
	switch KindOf(f) {
	case KeyPair:
		files, _, _ := strings.Cut(value, ":")
		var paths []string
		for file := range strings.SplitSeq(files, ",") {
			path, err := absolute(file)
			if err != nil {
				return "", err
			}
			paths = append(paths, path)
		}
		return strings.Join(paths, ",") + value[len(files):], nil
	case Path, File:
		if value != "" && value != "-" {
			return absolute(value)
		}
	}
	return value, nil
}

// isMade reports whether a missing file is one that the component creates: an
// authority or key in its directory of certificates.
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

// checkOf returns the check of a flag's value, or of each value of a list. It
// depends on the flag's kind, or else on its type.
func checkOf(f *pflag.Flag) func(string) error {
	switch kind := KindOf(f); kind {
	case oneOf:
		return isOneOf(f.Annotations[valuesAnnotation])
	case "":
		return checkOfType(f)
	default:
		return checkOfKind(kind)
	}
}

func checkOfKind(kind Kind) func(string) error {
	switch kind {
	case File:
		return isFile
	case Absolute:
		return isAbsolute
	case Address:
		return isAddress
	case Ranges:
		return areRanges
	case Name:
		return isName
	case URL:
		return IsURL
	case Socket:
		return isSocket
	case Host:
		return isHost
	case Header:
		return isHeader
	case Quantity:
		return isQuantity
	case Sysctl:
		return isSysctl
	case Table:
		return isTable
	case Limit:
		return isLimit
	case Listen:
		return isListen
	case Interface:
		return isInterface
	case NodePorts:
		return isNodePorts
	}
	return func(string) error { return nil }
}

func checkOfType(f *pflag.Flag) func(string) error {
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

// IsURL checks for a URL, or nothing.
func IsURL(s string) error {
	if u, err := url.Parse(s); s != "" && (err != nil || u.Scheme == "" || u.Host == "" && u.Path == "") {
		return fmt.Errorf("%q: want a URL such as https://10.0.0.1:2379", s)
	}
	return nil
}

func isSocket(s string) error {
	if path, ok := strings.CutPrefix(s, "unix://"); s != "" && (!ok || !filepath.IsAbs(path)) {
		return fmt.Errorf("%q: want a socket, such as unix:///run/containerd/containerd.sock", s)
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

// isHost checks for a name or an address, with or without a port.
func isHost(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = s, "443"
	}
	if net.ParseIP(strings.Trim(host, "[]")) == nil && isName(host) != nil || isPort(port) != nil {
		return fmt.Errorf("%q: want a host, such as api.example.com or api.example.com:6443", s)
	}
	return nil
}

// isSysctl checks for the name of a sysctl, or a prefix and a star.
func isSysctl(s string) error {
	if strings.Trim(strings.ToLower(strings.TrimSuffix(s, "*")), "abcdefghijklmnopqrstuvwxyz0123456789._/-") != "" {
		return fmt.Errorf("%q: want a sysctl, such as kernel.msgmax or net.*", s)
	}
	return nil
}

// isLimit checks for a number, or -1 for no limit.
func isLimit(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < -1 {
		return errors.New("can not be less than -1, which is no limit")
	}
	return nil
}

// isListen checks for an IP address and a port, an IP address, or nothing.
func isListen(s string) error {
	if s == "" || net.ParseIP(s) != nil {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || net.ParseIP(host) == nil || isPort(port) != nil {
		return fmt.Errorf("%q: want an address and a port, such as 0.0.0.0:10256, or nothing", s)
	}
	return nil
}

// isInterface checks for the name of a network interface.
func isInterface(s string) error {
	const longest = 15 // IFNAMSIZ without the zero at the end
	if len(s) > longest || strings.ContainsAny(s, "/ \t\n") {
		return fmt.Errorf("%q: want the name of a network interface, of at most %d characters", s, longest)
	}
	return nil
}

// isNodePorts checks for a CIDR or a word for several.
func isNodePorts(s string) error {
	if s == "primary" || s == "localhost" || s == "all" {
		return nil
	}
	if _, _, err := net.ParseCIDR(s); err != nil {
		return fmt.Errorf("%q: want a range such as 192.0.2.0/24, primary, localhost or all", s)
	}
	return nil
}

// isTable checks for an identifier of nft(8).
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

func isOneOf(values []string) func(string) error {
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
