package protocol

import "testing"

// The URL becomes part of a content security policy, so it must be one exact path and contain no separator of a policy.
func TestACodecEndpointIsOneHTTPSOrLoopbackURL(t *testing.T) {
	for _, good := range []string{
		"", "https://codec.example.com/decode", "https://codec.example.com:8443/a/b-c_d.e", "http://127.0.0.1:8090/decode",
		"http://localhost/decode", "http://127.8.0.1/x",
	} {
		if err := CheckCodecEndpoint("codec_endpoint", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"codec.example.com/decode", "http://codec.example.com/decode", "http://10.0.0.1/decode", "https://codec.example.com",
		"https://codec.example.com/", "https://codec.example.com/decode/", "https://user:pass@codec.example.com/decode",
		"https://codec.example.com/decode?x=1", "https://codec.example.com/decode#x", "https://*.example.com/decode",
		"https://codec.example.com/decode; script-src *", "https://codec.example.com/decode,https://evil.example/x",
		"https://codec.example.com/decode https://evil.example/x", "https://codec.example.com/../x", "javascript:alert(1)",
		"https://codec.example.com/'unsafe-inline'", "ftp://codec.example.com/decode", "http://localhost.evil.example/x",
		"http://127.0.0.1.evil.example/x", "https:///decode", "//codec.example.com/decode", "https://[::1]/decode",
	} {
		if CheckCodecEndpoint("codec_endpoint", bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
