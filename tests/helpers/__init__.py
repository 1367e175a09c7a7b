"""What several test files share: tiny models, collections, servers, a browser."""
