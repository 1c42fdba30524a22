package registries

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Host is a registry as containerd knows it.
type Host struct {
	Directory string // the name of its directory
	Content   string // of the file hosts.toml there
}

const dockerHub = "docker.io"

// Hosts returns the hosts.toml files that say the same as f.
//
// A login is a header there, which containerd sends to the host and to the server
// of tokens that the host names. containerd reads the files at each pull.
func (f *File) Hosts() []Host {
	names := map[string]bool{}
	for _, all := range []iter.Seq[string]{maps.Keys(f.Mirrors), maps.Keys(f.Configs)} {
		for name := range all {
			if slices.Contains(hubHosts(), name) {
				name = dockerHub
			}
			names[name] = true
		}
	}
	var out []Host
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, Host{Directory: directory(name), Content: f.host(name)})
	}
	return out
}

// hubHosts are the names of Docker Hub.
func hubHosts() []string { return []string{dockerHub, "registry-1.docker.io", "index.docker.io"} }

// directory returns containerd's name of the directory of a registry.
func directory(registry string) string {
	if registry == anyRegistry {
		return "_default"
	}
	if colon := strings.LastIndex(registry, ":"); colon > 0 {
		return registry[:colon] + "_" + registry[colon+1:] + "_"
	}
	return registry
}

// host returns the file of a registry.
func (f *File) host(registry string) string {
	var b strings.Builder
	b.WriteString("# Written by coracle from the registries file of its settings; changes made here are lost.\n")
	switch registry {
	case anyRegistry: // the server is that of the image's name
	case dockerHub:
		b.WriteString("server = \"https://registry-1.docker.io\"\n")
		for _, name := range hubHosts() {
			if c, ok := f.Configs[name]; ok {
				c.write(&b, "", "header")
				break
			}
		}
	default:
		c := f.Configs[registry]
		if c.TLS != nil || !isLoopback(registry) { // containerd also tries HTTP on loopback
			fmt.Fprintf(&b, "server = %s\n", quote("https://"+registry))
		}
		c.write(&b, "", "header")
	}
	endpoints, ok := f.endpoints(registry)
	if !ok {
		endpoints = f.Mirrors[anyRegistry].Endpoints
	}
	written := map[string]bool{}
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		table := "host." + quote(withoutSlash(endpoint))
		// Leave out an endpoint that Parse refused, the registry itself among the
		// mirrors of all, and duplicates: containerd refuses a file that has a
		// table twice.
		if err != nil || !ok && u.Host == registry || written[table] {
			continue
		}
		written[table] = true
		fmt.Fprintf(&b, "[%s]\n  capabilities = [\"pull\", \"resolve\"]\n", table)
		if strings.Trim(u.Path, "/") != "" {
			b.WriteString("  override_path = true\n")
		}
		f.Configs[u.Host].write(&b, "  ", table+".header")
	}
	return b.String()
}

// endpoints returns the mirrors of a registry, and whether the file has an entry
// for it. The endpoints of Docker Hub may be under each of its names.
func (f *File) endpoints(registry string) (endpoints []string, ok bool) {
	names := []string{registry}
	if registry == dockerHub {
		names = hubHosts()
	}
	for _, name := range names {
		if m, has := f.Mirrors[name]; has {
			endpoints, ok = append(endpoints, m.Endpoints...), true
		}
	}
	return endpoints, ok
}

// withoutSlash returns the form in which equal endpoints are equal.
func withoutSlash(endpoint string) string { return strings.TrimSuffix(endpoint, "/") }

// isLoopback reports whether a host is this machine by its name.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// write writes how to talk to a host: keys with an indentation, and then a table
// of headers.
func (c Config) write(b *strings.Builder, indent, headers string) {
	if t := c.TLS; t != nil {
		if t.CAFile != "" {
			fmt.Fprintf(b, "%sca = %s\n", indent, quote(t.CAFile))
		}
		if t.CertFile != "" {
			fmt.Fprintf(b, "%sclient = [[%s, %s]]\n", indent, quote(t.CertFile), quote(t.KeyFile))
		}
		if t.InsecureSkipVerify {
			fmt.Fprintf(b, "%sskip_verify = true\n", indent)
		}
	}
	if c.Auth == nil {
		return
	}
	if user, password, err := c.Auth.login(); err == nil {
		login := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
		fmt.Fprintf(b, "%s[%s]\n%s  Authorization = [%s]\n", indent, headers, indent, quote("Basic "+login))
	}
}

// quote returns a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Summary names the registries of a file without their logins, with a short hash
// by which a change shows. It returns "" for an empty file.
func Summary(content string) string {
	f, err := Parse(content)
	if f == nil || err != nil || f.String() == "" {
		return ""
	}
	names := slices.Collect(maps.Keys(f.Mirrors))
	names = append(names, slices.Collect(maps.Keys(f.Configs))...)
	slices.Sort(names)
	return fmt.Sprintf("%s (%.4x)", strings.Join(slices.Compact(names), ", "), sha256.Sum256([]byte(f.String())))
}
